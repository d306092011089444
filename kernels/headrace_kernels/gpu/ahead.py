"""Compiling kernels for a chip that is not there.

Triton keeps what it has compiled in a directory (TRITON_CACHE_DIR), under a key made of the source, the types of the
arguments, the options and the chip. Compiling here gives the same keys as launching there, so a server that finds the
directory compiles nothing when it starts.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from headrace_kernels.errors import ArgumentError
from headrace_kernels.gpu.launch import interpreting, observe

TARGETS = {"sm_80": 80, "sm_86": 86, "sm_89": 89, "sm_90": 90, "sm_100": 100, "sm_120": 120}
"""Chips by the name NVIDIA's compiler gives them: A100, A10, L4, H100 and H200, B200, RTX Blackwell."""


@dataclass
class Compiled:
    """What was compiled, each variant once."""

    target: str
    kernels: list[Any] = field(default_factory=list)  # triton's CompiledKernel
    _seen: set[int] = field(default_factory=set)

    def add(self, kernel: Any) -> None:
        """Keep it, unless it is there."""
        if id(kernel) not in self._seen:
            self._seen.add(id(kernel))
            self.kernels.append(kernel)


@contextmanager
def compiling(target: str) -> Iterator[Compiled]:
    """Launches compile for `target` and run nothing. Raises ArgumentError for an unknown one, or in the interpreter."""
    if target not in TARGETS:
        raise ArgumentError(f"target {target!r}: must be one of {', '.join(TARGETS)}")
    if interpreting():
        raise ArgumentError("kernels cannot be compiled with TRITON_INTERPRET=1; unset it")
    compiled = Compiled(target)

    def compile_only(kernel: Any, args: Sequence[Any], meta: dict[str, Any]) -> None:
        compiled.add(kernel.warmup(*args, grid=(1,), **meta))

    present = driver._active  # None until a device is asked for
    driver._active = _Absent(GPUTarget("cuda", TARGETS[target], 32))
    before = observe(compile_only)
    try:
        yield compiled
    finally:
        observe(before)
        driver._active = present


class _Absent:
    """A driver, as far as compiling asks one."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return -int(self._target.arch)  # a cache of compiled kernels for each chip, and none a real device's

    def get_current_stream(self, _device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")
