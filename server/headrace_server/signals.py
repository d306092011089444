"""What SIGTERM and SIGINT do while a command has nothing to end in order, and while it has something half made."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def end_quietly(status: int | None = None) -> None:
    """From now on either of them ends the process at once and without a word: with this exit status, or as shells count
    it, 128 and the signal's number. Who has something to end in order replaces it."""

    def end(number: int, frame: FrameType | None) -> None:
        os._exit(_as_shells_count(number) if status is None else status)

    for number in SIGNALS:
        signal.signal(number, end)


@contextmanager
def unwinding() -> Iterator[None]:
    """Inside, SIGTERM raises SystemExit and SIGINT KeyboardInterrupt, so that what is half made is taken away."""
    before = [
        signal.signal(number, handler)
        for number, handler in zip(SIGNALS, (_exit, signal.default_int_handler), strict=True)
    ]
    try:
        yield
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)


def _exit(number: int, frame: FrameType | None) -> None:
    raise SystemExit(_as_shells_count(number))


def _as_shells_count(number: int) -> int:
    return 128 + number
