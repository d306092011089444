"""Progress on stderr: a bar where somebody watches, a line every few seconds where it goes into a log."""

from __future__ import annotations

import sys
import time
from typing import Any

from tqdm.std import tqdm

LINE_EVERY = 2.0
"""Seconds between two lines of one task in a log."""


class LineProgress(tqdm):
    """A tqdm that writes whole lines: when it starts, every `LINE_EVERY` seconds, and when it ends."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._next_line = 0.0
        self._last_line = ""
        self._closed = bool(kwargs.get("disable"))
        super().__init__(*args, **{**kwargs, "file": sys.stderr, "mininterval": LINE_EVERY, "ascii": True})

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Write the state as one line, unless the last one is too fresh."""
        now = time.monotonic()
        if self.total and now >= self._next_line:
            self._next_line = now + LINE_EVERY
            self._write_line()
        return True

    def close(self) -> None:
        """Write the final state."""
        if self._closed:
            return
        self._closed = self.disable = True  # `disable` is what tqdm's own methods look at
        self._decr_instances(self)
        if self.total:
            self._write_line()

    def _write_line(self) -> None:
        state = self.format_dict
        amounts = [
            tqdm.format_sizeof(amount, divisor=1000) if self.unit_scale else str(amount)
            for amount in (state["n"], state["total"])
            if amount is not None
        ]
        line = f"{self.desc.removesuffix(': ')}: {' of '.join(amounts)} {self.unit}"
        if line != self._last_line:
            self._last_line = line
            sys.stderr.write(line + "\n")
            sys.stderr.flush()


def progress_class() -> type[tqdm[Any]]:
    """The bar for a terminal, the lines for anything else."""
    return tqdm if sys.stderr.isatty() else LineProgress


def byte_progress(description: str, total: int) -> tqdm[Any]:
    """Progress over `total` bytes."""
    return progress_class()(desc=description, total=total, unit="B", unit_scale=True, leave=True)


def single_bar(description: str) -> type[Any]:
    """A class for `huggingface_hub`'s tqdm_class that shows one bar of bytes where the library would show three.

    Its `close_all()` ends whatever it has shown.
    """
    shown: list[Any] = []

    class SingleBar(progress_class()):  # type: ignore[misc]  # chosen at run time
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # The others count files, and bytes on the network; this one bytes on disk, which is what one waits for.
            is_it = kwargs.get("unit") == "B" and kwargs.get("desc") != "Downloading bytes"
            for unwanted in ("name", "bar_format"):
                kwargs.pop(unwanted, None)
            super().__init__(*args, **{**kwargs, "desc": description, "disable": not is_it})
            shown.append(self)

        def set_description(self, desc: str | None = None, refresh: bool | None = True) -> None:
            """The description stays ours."""

        set_description_str = set_description

        @staticmethod
        def close_all() -> None:
            for bar in shown:
                bar.close()

    return SingleBar
