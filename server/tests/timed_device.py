"""A device beside the host, made of this computer's clock: work that torch does at once counts as done when its time
has come. So what a GPU does to the order of things can be seen without one."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_server.devices.host import HostDevice
from headrace_server.devices.interface import Graph, Memory


class TimedMark:
    """A moment of the device's time."""

    def __init__(self, at: float) -> None:
        self.at = at

    def wait(self) -> None:
        time.sleep(max(self.at - time.monotonic(), 0))

    def us_since(self, earlier: Any) -> int:
        return round((self.at - earlier.at) * 1e6)


class TimedDevice:
    """See `Device`. A forward pass takes `step_seconds`; all else takes none."""

    torch_device = torch.device("cpu")
    overlaps = True

    def __init__(self, step_seconds: float = 0.0, *, records: bool = True) -> None:
        self.records = records
        self.recorded = 0
        self.replayed = 0
        self.worst = 0  # what `worst_case` says
        self.rehearsed = 0
        self.works = True
        self.relieved = 0
        self._step_seconds = step_seconds
        self._busy_until = 0.0
        self._marks = 0
        self._host = HostDevice()

    def memory(self, fraction: float) -> Memory:
        return self._host.memory(fraction)

    def usable(self) -> bool:
        return self.works

    def relieve(self) -> None:
        self.relieved += 1

    def upload(self, arrays: Sequence[NDArray]) -> list[Tensor]:
        return self._host.upload(arrays)

    def download(self, tensors: Sequence[Tensor]) -> Callable[[], list[NDArray]]:
        """A copy, since a graph's memory is written again by the next step."""
        copies = [tensor.clone().numpy() for tensor in tensors]
        mark = TimedMark(max(self._busy_until, time.monotonic()))

        def landed() -> list[NDArray]:
            mark.wait()
            return copies

        return landed

    def mark(self) -> TimedMark:
        """TorchCompute makes three a step: it begins, it has its logits, it has sampled."""
        self._busy_until = max(self._busy_until, time.monotonic())
        if self._marks % 3 == 1:
            self._busy_until += self._step_seconds
        self._marks += 1
        return TimedMark(self._busy_until)

    def record(self, run: Callable[[], Tensor]) -> Graph:
        """A GPU runs it twice: to compile and allocate, and while it is captured."""
        run()
        run()
        self.recorded += 1
        return TimedGraph(self, run)

    def worst_case(self, run: Callable[[], None]) -> int:
        self.rehearsed += 1
        run()
        return self.worst


class TimedGraph:
    """Runs again what was recorded."""

    def __init__(self, device: TimedDevice, run: Callable[[], Tensor]) -> None:
        self._device = device
        self._run = run

    def replay(self) -> Tensor:
        self._device.replayed += 1
        return self._run()
