"""Rows of results: printed as they come, and kept for the JSON."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headrace_server.errors import lacks_memory


@dataclass(frozen=True)
class Line:
    """One measurement."""

    section: str
    name: str
    us: float | None = None
    gb_s: float | None = None
    tflop_s: float | None = None
    share: float | None = None  # of what the device can do at best, where there is such a limit
    goal: float | None = None  # of `share`
    beside: dict[str, float] | None = None  # microseconds of others that do the same
    error: float | None = None
    right: bool | None = None  # the error is within the tolerance
    note: str | None = None  # why something is missing

    @property
    def reached(self) -> bool | None:
        return None if self.goal is None or self.share is None else self.share >= self.goal

    def text(self) -> str:
        beside = ", ".join(f"{name} {us:,.0f}" for name, us in (self.beside or {}).items())
        cells = [
            f"{self.name:44}",
            f"{self.us:10,.1f}" if self.us is not None else " " * 10,
            f"{self.gb_s:8,.0f}" if self.gb_s is not None else " " * 8,
            f"{self.tflop_s:7.1f}" if self.tflop_s is not None else " " * 7,
            f"{self.share:5.0%}" if self.share is not None else " " * 5,
            f"≥{self.goal:4.0%} {'yes' if self.reached else 'NO ':3}" if self.reached is not None else " " * 9,
            self._verdict(),
            beside,
            self.note or "",
        ]
        return " ".join(cells).rstrip()

    def _verdict(self) -> str:
        if self.right is None:
            return ""
        if self.right:
            return "right"
        return "WRONG" if self.error is None else f"WRONG by {self.error:.1e}"


def told(problem: Exception) -> str:
    """For a note."""
    return f"{type(problem).__name__}: {problem}"[:200]


HEAD = f"{'':44} {'µs':>10} {'GB/s':>8} {'TFLOP/s':>7} {'share':>5} {'goal':9}"


class Report:
    """Prints a line when it is added."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add(self, line: Line) -> None:
        if not self.lines or self.lines[-1].section != line.section:
            print(f"\n{line.section}\n{HEAD}", flush=True)
        self.lines.append(line)
        print(line.text(), flush=True)

    def attempt(self, section: str, name: str, measure: Callable[[], Sequence[Line]]) -> None:
        """Add what `measure` gives. What does not run is wrong, but must not hide the others; what just has no memory
        here is left out."""
        try:
            lines = measure()
        except Exception as problem:
            short = lacks_memory(problem)
            lines = [Line(section, name, right=None if short else False, note="no memory" if short else told(problem))]
        for line in lines:
            self.add(line)

    def as_json(self) -> list[dict[str, Any]]:
        kept = [{**asdict(line), "reached": line.reached} for line in self.lines]
        return [{name: value for name, value in line.items() if value is not None} for line in kept]

    @property
    def all_right(self) -> bool:
        """Nothing was computed wrongly. What is slower than hoped for is no failure."""
        return not any(line.right is False for line in self.lines)
