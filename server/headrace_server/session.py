"""Sessions: three streams that share one order and one fate."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace_server.errors import Closed, Occupied, ProtocolError
from headrace_server.inbox import Inbox
from headrace_server.log import LOGGER
from headrace_server.model_thread import ModelThread

MAX_UNANSWERED = 256  # messages; a router has two steps and a few Filters under way
REMEMBERED = 64  # ended sessions whose late streams are refused
PREDECESSOR_SECONDS = 2.0
"""For a session to end before the next one: its router may have died a moment ago."""

Work = Callable[[int], Any]
"""What a message asks for, run on the model thread with the microseconds that it waited."""


class Session:
    """One run of sequence numbers. Work submitted to it happens in their order, and not at all once it has ended."""

    def __init__(self, number: int, model: ModelThread) -> None:
        self.number = number
        self.began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        self.streams: set[str] = set()
        self.unanswered = 0
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._alive = True  # read by the model thread
        self._model = model
        self._inbox: Inbox[tuple[Work, asyncio.Future, int]] = Inbox(MAX_UNANSWERED)

    def submit(self, sequence: int, work: Work) -> asyncio.Future:
        """Queue a message's work at its place; the future gets its answer. Raises ProtocolError on a bad sequence."""
        if self.unanswered >= MAX_UNANSWERED:
            raise ProtocolError(f"{self.unanswered} messages are unanswered; send fewer, or read the answers")
        self.unanswered += 1
        answer = asyncio.get_running_loop().create_future()
        for ready in self._inbox.put(sequence, (work, answer, time.monotonic_ns())):
            self._start(*ready)
        return answer

    def answered(self) -> None:
        """An answer was written."""
        self.unanswered -= 1

    def end(self, reason: str) -> None:
        """End all streams of the session; nothing that it asked for and has not begun will happen."""
        if self._alive:
            self._alive = False
            self.ended.set_result(reason)
            LOGGER.info("session %d ended: %s", self.number, reason)

    @property
    def alive(self) -> bool:
        return self._alive

    def _start(self, work: Work, answer: asyncio.Future, arrived_ns: int) -> None:
        def job() -> Any:
            return work((time.monotonic_ns() - arrived_ns) // 1000) if self._alive else None

        def finished(done: asyncio.Future) -> None:
            if answer.done() or done.cancelled() or not self._alive:
                return
            if (error := done.exception()) is not None:
                answer.set_exception(error)
            else:
                answer.set_result(done.result())

        self._model.submit(job).add_done_callback(finished)


class Sessions:
    """At most one session is alive. It ends with its streams, so with its router; until then no other one begins."""

    def __init__(self, model: ModelThread, on_start: Callable[[], None]) -> None:
        """`on_start` runs on the model thread before any work of a new session."""
        self.current: Session | None = None
        self._closed: str | None = None  # why no session begins any more
        self._model = model
        self._on_start = on_start
        self._ended: deque[int] = deque(maxlen=REMEMBERED)

    async def join(self, number: int, stream: str) -> Session:
        """A stream names its session. Raises Occupied if another one goes on, ProtocolError if this one has ended or
        has such a stream already, Closed after `close`."""
        if number not in self._ended:
            await self.free_for(number)
        if self._closed is not None:
            raise Closed(f"session {number} ended: {self._closed}")
        session = self.current
        if session is None or session.number != number:
            session = self._begin(number)
        if not session.alive:
            raise ProtocolError(f"session {number} has ended; open a new one")
        if stream in session.streams:
            raise ProtocolError(f"session {number} has a {stream} stream already")
        session.streams.add(stream)
        return session

    async def free_for(self, number: int | None = None) -> None:
        """Wait until no session, or no other than this one, is alive. Raises Occupied if one goes on."""
        if (other := self._other(number)) is None:
            return
        await asyncio.wait((other.ended,), timeout=PREDECESSOR_SECONDS)
        if (other := self._other(number)) is not None:
            raise Occupied(
                f"it serves another router since {other.began}; stop that one first, or start ranks for this one"
            )

    def _other(self, number: int | None) -> Session | None:
        session = self.current
        return session if session is not None and session.alive and session.number != number else None

    def close(self, reason: str) -> None:
        """End the current session, if there is one; no other begins."""
        self._closed = reason
        if self.current is not None:
            self.current.end(reason)

    def unanswered(self) -> int:
        """Messages of the current session without an answer."""
        return self.current.unanswered if self.current is not None and self.current.alive else 0

    def _begin(self, number: int) -> Session:
        if number in self._ended:
            raise ProtocolError(f"session {number} has ended; open a new one")
        if self.current is not None:
            self._ended.append(self.current.number)
        self.current = Session(number, self._model)
        self._model.submit(self._on_start)
        LOGGER.info("session %d began", number)
        return self.current
