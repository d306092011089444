"""The one thread that gives work to the device, and the one that waits for what it gave.

Whoever awaits their answers stays free to talk.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from headrace_server.log import LOGGER

QUIET_SECONDS = 0.2
"""Without a job for so long, the model thread does what can wait."""


@dataclass(frozen=True, slots=True)
class Later:
    """What a job returns when its result comes by itself: `wait` is called by another thread while this one goes on."""

    wait: Callable[[], Any]


class ModelThread:
    """Runs jobs one after another, in the order they were submitted. A daemon: the process may end under a long job."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future]] = SimpleQueue()
        self._landings: SimpleQueue[tuple[Later, asyncio.Future]] = SimpleQueue()
        self._finished_ns = time.monotonic_ns()
        self._when_quiet: Callable[[], bool] = _nothing
        threading.Thread(target=self._run, name="model", daemon=True).start()
        threading.Thread(target=self._land, name="landing", daemon=True).start()

    def submit(self, job: Callable[[], Any]) -> asyncio.Future:
        """From the event loop; the future gets what `job` returns or raises."""
        future = asyncio.get_running_loop().create_future()
        self._jobs.put((job, future))
        return future

    def when_quiet(self, task: Callable[[], bool]) -> None:
        """Call `task` on the model thread whenever no job has come for a moment, until it returns False."""
        self._when_quiet = task

    def idle_us(self) -> int:
        """Microseconds since the last job finished, or since the thread started."""
        return (time.monotonic_ns() - self._finished_ns) // 1000

    def _run(self) -> None:
        while True:
            job, future = self._next()
            try:
                result, error = job(), None
            except BaseException as raised:  # handed on, whatever it is
                result, error = None, raised
            if isinstance(result, Later):
                self._landings.put((result, future))
            elif not self._settle(future, result, error):
                return

    def _next(self) -> tuple[Callable[[], Any], asyncio.Future]:
        while self._when_quiet is not _nothing:
            try:
                return self._jobs.get(timeout=QUIET_SECONDS)
            except Empty:
                self._use_the_quiet()
        return self._jobs.get()

    def _use_the_quiet(self) -> None:
        try:
            more = self._when_quiet()
        except Exception:
            LOGGER.exception("what was to be done in a quiet moment failed; it is given up")
            more = False
        if not more:
            self._when_quiet = _nothing

    def _land(self) -> None:
        while True:
            later, future = self._landings.get()
            try:
                result, error = later.wait(), None
            except BaseException as raised:
                result, error = None, raised
            if not self._settle(future, result, error):
                return

    def _settle(self, future: asyncio.Future, result: Any, error: BaseException | None) -> bool:
        """False: the event loop is closed, for the process is ending."""
        self._finished_ns = time.monotonic_ns()
        try:
            future.get_loop().call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:
            return False
        return True


def _nothing() -> bool:
    return False


def _settle(future: asyncio.Future, result: Any, error: BaseException | None) -> None:
    if future.done():  # its reader is gone
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
