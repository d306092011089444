"""Ranks that are not there, for compiling what they would run: what they say has a shape and no meaning."""

from torch import Tensor

from headrace_server.distributed.collective import Alone


class AbsentRanks(Alone):
    """One rank among others, without the others."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size

    def gather(self, x: Tensor) -> list[Tensor] | None:
        return [x] * self.world_size if self.rank == 0 else None
