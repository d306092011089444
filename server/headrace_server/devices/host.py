"""The CPU: work is done when the call returns."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_server.devices.interface import Graph, Memory
from headrace_server.memory import CPU_SHARE, available_bytes


class HostMark:
    """A moment: everything before it has happened."""

    def __init__(self) -> None:
        self._ns = time.perf_counter_ns()

    def wait(self) -> None:
        pass

    def us_since(self, earlier: Any) -> int:
        return (self._ns - earlier._ns) // 1000


class HostDevice:
    """See `Device`."""

    def __init__(self, sharers: int = 1) -> None:
        """`sharers`: processes like this one on the machine."""
        self._sharers = sharers

    torch_device = torch.device("cpu")
    overlaps = False
    records = False

    def memory(self, fraction: float) -> Memory:
        """`fraction` is a GPU's."""
        return Memory(available_bytes(), CPU_SHARE / self._sharers)

    def usable(self) -> bool:
        return True

    def relieve(self) -> None:
        pass

    def upload(self, arrays: Sequence[NDArray]) -> list[Tensor]:
        return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]

    def download(self, tensors: Sequence[Tensor]) -> Callable[[], list[NDArray]]:
        arrays = [tensor.numpy() for tensor in tensors]
        return lambda: arrays

    def mark(self) -> HostMark:
        return HostMark()

    def record(self, run: Callable[[], Tensor]) -> Graph:
        raise NotImplementedError("a CPU has no graphs; `records` says so")

    def worst_case(self, run: Callable[[], None]) -> int:
        return 0  # the share leaves room for it
