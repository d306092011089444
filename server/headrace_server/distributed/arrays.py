"""What ranks do together with numpy arrays: torch's tensors of the same memory."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from headrace_server.distributed.collective import Collective


class ArrayCollective:
    """A `Collective` for whoever computes without torch. The same calls in the same order on every rank."""

    def __init__(self, collective: Collective) -> None:
        self.collective = collective

    def add_up(self, x: NDArray[np.float32]) -> None:
        """Make x the sum of all ranks'."""
        mine = torch.from_numpy(x)
        mine.copy_(self.collective.all_reduce(mine))

    def gather(self, x: NDArray) -> Sequence[NDArray] | None:
        """On rank 0 every rank's x, in their order; elsewhere None. All are of one shape."""
        parts = self.collective.gather(torch.from_numpy(x))
        return None if parts is None else [part.numpy() for part in parts]

    def broadcast(self, x: NDArray) -> None:
        """Fill x with rank 0's."""
        self.collective.broadcast(torch.from_numpy(x))
