"""A GPU that is not there: tensors have shapes and no numbers. What is launched on it is compiled, see `warm`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_server.devices.host import HostMark
from headrace_server.devices.interface import Memory

MEMORY = 2**40  # bytes: no pool is too large


@dataclass(frozen=True, slots=True)
class AbsentGraph:
    """Its output has a shape."""

    output: Tensor

    def replay(self) -> Tensor:
        return self.output


class AbsentDevice:
    """See `Device`."""

    torch_device = torch.device("meta")
    overlaps = False
    records = True

    def memory(self, fraction: float) -> Memory:
        return Memory(MEMORY, 1.0)

    def usable(self) -> bool:
        return True

    def relieve(self) -> None:
        pass

    def upload(self, arrays: Sequence[NDArray]) -> list[Tensor]:
        return [torch.from_numpy(np.ascontiguousarray(array)).to("meta") for array in arrays]

    def download(self, tensors: Sequence[Tensor]) -> Callable[[], list[NDArray]]:
        """Ones: the number of a token, and "yes" to whether it could be chosen."""
        ones = [torch.ones(tensor.shape, dtype=tensor.dtype).numpy() for tensor in tensors]
        return lambda: ones

    def mark(self) -> HostMark:
        return HostMark()

    def record(self, run: Callable[[], Tensor]) -> AbsentGraph:
        return AbsentGraph(run())

    def worst_case(self, run: Callable[[], None]) -> int:
        run()
        return 0
