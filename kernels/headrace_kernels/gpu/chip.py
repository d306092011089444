"""What the chip can do that kernels are launched on or compiled for."""

from triton.runtime import driver

from headrace_kernels.gpu.launch import interpreting

FLOAT8 = 89
"""Compute capability, major · 10 + minor, from which on chips convert and multiply float8 e4m3."""


def capability() -> int:
    """Major · 10 + minor, such as 90 of an H100. 0 in the interpreter, which has nothing special."""
    return 0 if interpreting() else int(driver.active.get_current_target().arch)
