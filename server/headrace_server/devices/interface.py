"""What the torch compute needs of a device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    available: int  # that may still be taken, of which `share` may become KV cache
    share: float


class Mark(Protocol):
    """A point in the device's order of work."""

    def wait(self) -> None:
        """Until the device has come to it. Any thread; others run meanwhile."""
        ...

    def us_since(self, earlier: Any) -> int:
        """Microseconds that the device took from `earlier`, a mark of its own, to this; both have been waited for."""
        ...


class Graph(Protocol):
    """A recorded sequence of kernels on fixed memory."""

    def replay(self) -> Tensor:
        """Run it with what its inputs hold now. What it returns is overwritten by the next replay."""
        ...


class Device(Protocol):
    """Work is done in the order in which it is given; giving it does not wait for its end."""

    torch_device: torch.device
    overlaps: bool  # whether work goes on while the host does something else
    records: bool  # whether `record` can be called

    def memory(self, fraction: float) -> Memory:
        """What is there now. `fraction`: of the whole device, for everything that this process has."""
        ...

    def usable(self) -> bool:
        """Whether it still computes for this process. Waits for it."""
        ...

    def relieve(self) -> None:
        """Give back memory that is kept for reuse."""
        ...

    def upload(self, arrays: Sequence[NDArray]) -> list[Tensor]:
        """Copies on the device, in one transfer. The arrays may not change before the step has ended."""
        ...

    def download(self, tensors: Sequence[Tensor]) -> Callable[[], list[NDArray]]:
        """Copies on the host, once the device has come this far. Calling what is returned waits for it; any thread."""
        ...

    def mark(self) -> Mark:
        """The point after all work given so far."""
        ...

    def record(self, run: Callable[[], Tensor]) -> Graph:
        """What `run` does, as one unit. All graphs share their scratch memory: they never run at the same time."""
        ...

    def worst_case(self, run: Callable[[], None]) -> int:
        """Bytes of device memory that `run` needs at its peak, beyond what is held before it; 0, without running it,
        where the share that `memory` tells leaves room enough."""
        ...
