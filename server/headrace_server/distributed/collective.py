"""What ranks do together. Every rank calls the same operations in the same order; each waits for all."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

WORDS = 6  # numbers, at most, that say what a rank is about to do: an act, and the limits of Warmup
MOST_SAID = 1024  # bytes of what a rank tells the others in words
PAUSE_SECONDS = 0.001  # between two looks at what the other ranks are about to do


class Act(IntEnum):
    """What ranks begin together; the first of the numbers that say what a rank is about to do."""

    WARM_UP = 1
    STEP = 2
    IMPROVE = 3


class Kind(Enum):
    """What ranks do with tensors of one shape."""

    SUM = auto()
    GATHER = auto()
    BROADCAST = auto()


@dataclass(frozen=True, slots=True)
class Exchange:
    """What ranks do together with tensors, one time."""

    kind: Kind
    shape: tuple[int, ...]  # of each rank's
    dtype: torch.dtype


class Collective(Protocol):
    """The ranks of one model. Used on the model thread alone.

    Where another rank is gone, nothing here returns: the process ends.
    """

    rank: int
    world_size: int
    waits: bool  # for other ranks, now; read by any thread
    joined: int  # exchanges of tensors that this rank has taken part in, for whoever counts them

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of all ranks' x, on every rank. x may be overwritten."""
        ...

    def gather(self, x: Tensor) -> list[Tensor] | None:
        """On rank 0 every rank's x, in their order; elsewhere None. All are of one shape."""
        ...

    def broadcast(self, x: Tensor) -> None:
        """Fill x with rank 0's."""
        ...

    def receives(self, kind: Kind) -> int:
        """How many tensors like its own this rank needs room for in such an exchange."""
        ...

    def take_part(self, kind: Kind, x: Tensor, room: Tensor) -> None:
        """All of an exchange that other ranks wait for, and nothing that takes memory. x may be overwritten.

        room [receives(kind), *x.shape]: what comes from the others; x, where nothing needs room
        """
        ...

    def same(self, mine: tuple[int, ...]) -> bool:
        """Whether all ranks say the same, in at most WORDS numbers. On the host: it does not wait for a GPU."""
        ...

    def least(self, value: int) -> int:
        """The least of all ranks' values. On the host."""
        ...

    def tell_all(self, mine: str) -> list[str]:
        """What every rank says, in their order; of each the first MOST_SAID bytes. On the host."""
        ...

    def give_up(self, error: BaseException) -> None:
        """This rank failed alone and cannot keep in step: tell the others why, and end the process. Does not return."""
        ...


class Alone:
    """The collective of a single rank: nothing to exchange."""

    rank = 0
    world_size = 1
    waits = False
    joined = 0

    def all_reduce(self, x: Tensor) -> Tensor:
        return x

    def gather(self, x: Tensor) -> list[Tensor] | None:
        return [x]

    def broadcast(self, x: Tensor) -> None:
        pass

    def receives(self, kind: Kind) -> int:
        return 0

    def take_part(self, kind: Kind, x: Tensor, room: Tensor) -> None:
        pass

    def same(self, mine: tuple[int, ...]) -> bool:
        return True

    def least(self, value: int) -> int:
        return value

    def tell_all(self, mine: str) -> list[str]:
        return [mine]

    def give_up(self, error: BaseException) -> None:
        raise error


def complaint(collective: Collective, mine: str) -> str:
    """What this rank complains of, else another one with its number; empty, on every rank, if none complains."""
    everyones = collective.tell_all(mine)
    return mine or next((f"rank {rank} says: {theirs}" for rank, theirs in enumerate(everyones) if theirs), "")


def agree(collective: Collective, mine: tuple[int, ...], wanted: Callable[[], bool]) -> bool:
    """Wait until all ranks are about to do the same thing, `mine`, said in at most WORDS numbers. False once it is not
    wanted here any more.

    A router that goes away may have reached some ranks with a message and others not. Those that it reached wait here,
    learn from the next router's first message that the others do something else, see that their own session is over,
    and leave the old message behind.
    """
    while not collective.same(mine):
        if not wanted():
            return False
        time.sleep(PAUSE_SECONDS)
    return True
