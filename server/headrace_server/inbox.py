"""Puts messages of several streams into the one order that their sequence numbers say. Pure."""

from typing import Generic, TypeVar

from headrace_server.errors import ProtocolError

T = TypeVar("T")


class Inbox(Generic[T]):
    """Holds messages that came before their turn. Sequence numbers start at 1 and have no gaps."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._next = 1
        self._waiting: dict[int, T] = {}

    def __len__(self) -> int:
        """Messages that wait for an earlier one."""
        return len(self._waiting)

    def put(self, sequence: int, message: T) -> list[T]:
        """Take a message in; returns those whose turn it is now, in order.

        Raises ProtocolError if the number was used before, or if more than `capacity` messages wait for a missing one.
        """
        if sequence < self._next or sequence in self._waiting:
            raise ProtocolError(f"sequence {sequence} came twice; the next one is {self._next}")
        self._waiting[sequence] = message
        ready = []
        while self._next in self._waiting:
            ready.append(self._waiting.pop(self._next))
            self._next += 1
        if len(self._waiting) > self._capacity:
            raise ProtocolError(f"{len(self._waiting)} messages wait for sequence {self._next}, which never came")
        return ready
