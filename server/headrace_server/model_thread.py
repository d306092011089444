"""The one thread that touches tensors. Whoever awaits its answers stays free to talk."""

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class ModelThread:
    """Runs jobs one after another, in the order they were submitted. A daemon: the process may end under a long job."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future]] = SimpleQueue()
        self._finished_ns = time.monotonic_ns()
        threading.Thread(target=self._run, name="model", daemon=True).start()

    def submit(self, job: Callable[[], Any]) -> asyncio.Future:
        """From the event loop; the future gets what `job` returns or raises."""
        future = asyncio.get_running_loop().create_future()
        self._jobs.put((job, future))
        return future

    def idle_us(self) -> int:
        """Microseconds since the last job finished, or since the thread started."""
        return (time.monotonic_ns() - self._finished_ns) // 1000

    def _run(self) -> None:
        while True:
            job, future = self._jobs.get()
            try:
                result, error = job(), None
            except BaseException as raised:  # handed on, whatever it is
                result, error = None, raised
            self._finished_ns = time.monotonic_ns()
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                return  # the event loop is closed: the process is ending


def _settle(future: asyncio.Future, result: Any, error: BaseException | None) -> None:
    if future.done():  # its reader is gone
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
