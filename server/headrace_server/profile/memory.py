"""What steps allocate once everything is warm, and what the process holds."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from headrace_server.profile.shapes import Shape
from headrace_server.profile.steps import Steps

RESIDENT_STEPS = 200
TRACED_STEPS = 30
WARM_STEPS = 20
STEADY_STEPS = WARM_STEPS + RESIDENT_STEPS + 2 * TRACED_STEPS


@dataclass(frozen=True, slots=True)
class Steady:
    """What steps of decodes allocate. Bytes."""

    shape: Shape
    resident_growth: int  # of the process, over RESIDENT_STEPS
    python_peak: int  # the most that a step's Python and numpy hold beyond what was there before it
    python_kept: float  # what is left of it a step


@dataclass(frozen=True, slots=True)
class Held:
    """What the process holds. Bytes."""

    resident: int
    peak: int  # at any time, loading included
    weights: int
    pool: int  # of keys and values, all of it written

    @property
    def rest(self) -> int:
        return self.resident - self.weights - self.pool


def measure_steady(steps: Steps, shape: Shape) -> Steady:
    """Steps of decodes, nothing timed: tracing makes them slow, and takes memory itself, so it comes last."""
    messages = steps.decodes(shape, STEADY_STEPS)
    for _ in range(WARM_STEPS):
        steps.execute_decode(next(messages))
    before = _status("VmRSS")
    for _ in range(RESIDENT_STEPS):
        steps.execute_decode(next(messages))
    growth = _status("VmRSS") - before
    tracemalloc.start()
    try:
        _, first = _traced(steps, messages)
        peak, last = _traced(steps, messages)
    finally:
        tracemalloc.stop()
    return Steady(shape, growth, peak, (last - first) / TRACED_STEPS)


def _traced(steps: Steps, messages: Iterator[bytes]) -> tuple[int, int]:
    """The most that one of TRACED_STEPS held beyond what was there before it, and what is there after all."""
    peak = 0
    for message in islice(messages, TRACED_STEPS):
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        steps.execute_decode(message)
        peak = max(peak, tracemalloc.get_traced_memory()[1] - before)
    return peak, tracemalloc.get_traced_memory()[0]


def measure_held(weights: int, pool: int) -> Held:
    """As it is now."""
    return Held(_status("VmRSS"), _status("VmHWM"), weights, pool)


def _status(field: str) -> int:
    """A line of /proc/self/status, which counts in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
