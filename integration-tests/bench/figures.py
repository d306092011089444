"""From the runs of each server to what a table says: medians, spread, ratios."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bench.cases import Case


@dataclass(frozen=True)
class Spread:
    """Of one server in one case: the median of its runs, and the runs between which it lies."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(runs: Sequence[float]) -> Spread:
        return Spread(median(runs), min(runs), max(runs))


def ratio(case: Case, ours: Spread, theirs: Spread) -> float:
    """How many times better ours is: of speeds ours ÷ theirs, of times theirs ÷ ours."""
    first, second = (theirs, ours) if case.unit.less_is_better else (ours, theirs)
    return first.median / second.median


def best(case: Case, others: dict[str, Spread]) -> str | None:
    """Whose median is the best."""
    pick = min if case.unit.less_is_better else max
    return pick(others, key=lambda name: others[name].median, default=None)


@dataclass(frozen=True)
class Verdict:
    """One of the things asked of Headrace: what, and whether it holds. None: nothing to compare with."""

    asked: str
    holds: bool | None


def verdicts(case: Case, ours: Spread, vllm: Spread | None, floor: float | None) -> list[Verdict]:
    """Everything asked in this case. Goals that are only hoped for are no verdicts."""
    asked, said = case.asked, []
    if asked.of_floor is not None and floor is not None:
        said.append(Verdict(f"≥ {asked.of_floor:.0%} of the floor", ours.median >= asked.of_floor * floor))
    if asked.limit is not None:
        less = case.unit.less_is_better
        reached = ours.median <= asked.limit if less else ours.median >= asked.limit
        said.append(Verdict(f"{'≤' if less else '≥'} {asked.limit:,g}", reached))
    if asked.of_vllm is not None:
        holds = None if vllm is None else ratio(case, ours, vllm) >= asked.of_vllm
        said.append(Verdict(f"≥ {asked.of_vllm:g}x vLLM", holds))
    return said
