"""What the chip can do that kernels are launched on or compiled for."""

from functools import cache

import torch
from triton.runtime import driver

from headrace_kernels.gpu.launch import interpreting

FLOAT8 = 89
"""Compute capability, major · 10 + minor, from which on chips convert and multiply float8 e4m3."""


def capability() -> int:
    """Major · 10 + minor, such as 90 of an H100. 0 of what has nothing special: the interpreter, and chips that are not
    NVIDIA's, whose numbers say something else."""
    if interpreting():
        return 0
    target = driver.active.get_current_target()
    return int(target.arch) if target.backend == "cuda" else 0


ABSENT_MULTIPROCESSORS = 132
"""Of an H200; for a device that isn't there. No kernel is compiled differently for it."""


def multiprocessors(device: torch.device) -> int:
    """How many thread blocks run at once, at one each."""
    return _multiprocessors(device) if device.type == "cuda" else ABSENT_MULTIPROCESSORS


@cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
