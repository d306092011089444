"""Ranks that are not there, for compiling what they would run: what they say has a shape and no meaning."""

from torch import Tensor


class AbsentRanks:
    """See `Collective`. One rank among others, without the others."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size

    def all_reduce(self, x: Tensor) -> Tensor:
        return x

    def gather(self, x: Tensor) -> list[Tensor] | None:
        return [x] * self.world_size if self.rank == 0 else None

    def broadcast(self, x: Tensor) -> None:
        pass

    def same(self, mine: tuple[int, ...]) -> bool:
        return True

    def least(self, value: int) -> int:
        return value

    def give_up(self, error: BaseException) -> None:
        raise error
