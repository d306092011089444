"""What a rank still does in a step that it has no memory for: the others wait for it in every exchange.

Memory, a GPU's too, is taken on the host, while a step is launched, so a rank that finds none is between two exchanges.
It says nothing (zeros) in those that are left, in memory that was kept for this, and fails when the others have what
they need of it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod

import torch

from headrace_server.distributed.collective import Collective, Exchange, Kind
from headrace_server.errors import ShortOfMemory, first_line, lacks_memory

Course = Sequence[Callable[[], None]]
"""What other ranks wait for, in order: one call for each that counts as joined."""


class StandIn:
    """Takes one of several ranks through a step."""

    def __init__(self, collective: Collective, device: torch.device) -> None:
        self._collective = collective
        self._memory = torch.empty(0, dtype=torch.uint8, device=device)

    def reserve(self, *largest: Exchange) -> None:
        """Keep memory for exchanges of up to this size."""
        size = max(self._tensors(exchange) * _bytes(exchange) for exchange in largest)
        self._memory = torch.empty(size, dtype=torch.uint8, device=self._memory.device)

    def free(self) -> None:
        self._memory = torch.empty(0, dtype=torch.uint8, device=self._memory.device)

    def say_nothing(self, *exchanges: Exchange) -> Course:
        """The course of these exchanges."""
        return [partial(self._say_nothing, exchange) for exchange in exchanges]

    @contextmanager
    def through(self, course: Callable[[], Course]) -> Iterator[None]:
        """Where there is no memory for something within, raises ShortOfMemory, after what is left of the course, which
        nobody asks for otherwise. A rank that is alone has none, and raises what was raised."""
        begun = self._collective.joined
        try:
            yield
        except Exception as error:
            if self._collective.world_size == 1 or not lacks_memory(error):
                raise
            for take_part in course()[self._collective.joined - begun :]:
                take_part()
            raise ShortOfMemory(first_line(error)) from error

    def _say_nothing(self, exchange: Exchange) -> None:
        count = self._tensors(exchange)
        tensors = self._memory[: count * _bytes(exchange)].view(exchange.dtype).view(count, *exchange.shape).zero_()
        self._collective.take_part(exchange.kind, tensors[0], tensors[1:] if count > 1 else tensors[0])

    def _tensors(self, exchange: Exchange) -> int:
        return 1 + self._collective.receives(exchange.kind)


def passed_on(sampled: int) -> list[Exchange]:
    """How all ranks learn the ids that so many rows sampled."""
    return [Exchange(Kind.BROADCAST, (sampled,), torch.int64)] if sampled else []


def _bytes(exchange: Exchange) -> int:
    return prod(exchange.shape) * exchange.dtype.itemsize
