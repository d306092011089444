"""Results as JSON, for machines, and as a Markdown table, for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.cases import Case
from bench.figures import Spread, Verdict, best, ratio, verdicts
from bench.floors import Machine, floor
from bench.load import Run
from bench.rounds import Results
from bench.shape import Shape

OURS = "headrace"
THE_PEER = "vllm"


@dataclass(frozen=True)
class Line:
    """A case: what each server reached and the best that anybody could."""

    case: Case
    # None of a start, and where no server has a run, which would say how many tokens a mixture had.
    floor: float | None
    spreads: dict[str, Spread]
    reasons: dict[str, str]
    runs: dict[str, list[Run]]

    @property
    def ours(self) -> Spread | None:
        return self.spreads.get(OURS)

    @property
    def best_peer(self) -> str | None:
        return best(self.case, {name: spread for name, spread in self.spreads.items() if name != OURS})

    @property
    def of_floor(self) -> float | None:
        """How near ours is: 1 is at the floor."""
        if self.ours is None or self.floor is None:
            return None
        return ratio(self.case, self.ours, Spread.of([self.floor]))

    def times(self, peer: str) -> float | None:
        """How many times better than this peer ours is."""
        return ratio(self.case, self.ours, self.spreads[peer]) if self.ours and peer in self.spreads else None

    def verdicts(self) -> list[Verdict]:
        if self.ours is None:
            return []
        return verdicts(self.case, self.ours, self.spreads.get(THE_PEER), self.floor)


def lines(results: Results, cases: Sequence[Case], shape: Shape, machine: Machine) -> list[Line]:
    return [_line(results, case, shape, machine) for case in cases]


def _line(results: Results, case: Case, shape: Shape, machine: Machine) -> Line:
    runs = {name: list(of) for name, of in results.runs[case.name].items()}
    tokens = next((run.output_tokens for of in runs.values() for run in of), None)
    best_possible = None if tokens is None else floor(case, shape, machine, tokens)
    return Line(case, best_possible, results.spreads(case), dict(results.reasons[case.name]), runs)


def as_json(table: Sequence[Line], results: Results, machine: Machine, about: dict[str, Any]) -> dict[str, Any]:
    """`about`: the machine, the model and the command, as the caller knows them."""
    return {
        **about,
        "read_bandwidth_gb_s": round(machine.bandwidth / 1e9, 2),
        "bf16_tflop_s": round(machine.flops / 1e12, 3),
        "servers": results.installed,
        "cases": [_case_as_json(line) for line in table],
    }


def _case_as_json(line: Line) -> dict[str, Any]:
    case = line.case
    return {
        "case": case.name,
        "title": case.title,
        "unit": case.unit.value,
        "weights": case.weights.value,
        "requests": case.requests,
        "concurrency": case.concurrency,
        "floor": line.floor,
        "of_floor": line.of_floor,
        "best_peer": line.best_peer,
        "asked": [vars(verdict) for verdict in line.verdicts()],
        "servers": {
            name: {
                **({"median": spread.median, "low": spread.low, "high": spread.high} if spread else {}),
                "headrace_is_times_better": None if name == OURS else line.times(name),
                "no_figure_because": line.reasons.get(name),
                "runs": [run.as_json() for run in line.runs.get(name, [])],
            }
            for name in dict.fromkeys([*line.runs, *line.reasons])
            for spread in [line.spreads.get(name)]
        },
    }


def as_markdown(table: Sequence[Line], results: Results, machine: Machine, rounds: int) -> str:
    servers = list(dict.fromkeys(name for line in table for name in [*line.runs, *line.reasons]))
    head = ["case", "unit", *servers, "floor", "of the floor", "beside the best peer", "asked"]
    rows = [head, ["---"] * len(head), *(_row(line, servers) for line in table)]
    said = [f"- {name}: {what}" for name, what in results.installed.items()]
    lost = [
        f"- {name}, {line.case.name}: {_first_line(reason)}" for line in table for name, reason in line.reasons.items()
    ]
    return "\n".join(
        [
            f"Medians of {rounds} rounds (lowest–highest). Read bandwidth {machine.bandwidth / 1e9:.1f} GB/s, "
            f"bfloat16 products {machine.flops / 1e12:.2f} TFLOP/s.",
            "",
            *("| " + " | ".join(row) + " |" for row in rows),
            "",
            *said,
            *_idle(table),
            *(["", "No figure:", "", *lost] if lost else []),
            "",
        ]
    )


def _row(line: Line, servers: Sequence[str]) -> list[str]:
    best_peer = line.best_peer
    beside = line.times(best_peer) if best_peer else None
    return [
        line.case.title,
        line.case.unit.value,
        *(cell(line.spreads.get(name)) for name in servers),
        "–" if line.floor is None else number(line.floor),
        "–" if line.of_floor is None else f"{line.of_floor:.0%}",
        "–" if beside is None else f"{beside:.2f}x {best_peer}",
        "; ".join(_said(verdict) for verdict in line.verdicts()) or "–",
    ]


def _idle(table: Sequence[Line]) -> list[str]:
    shares = {line.case.name: [run.idle for run in line.runs.get(OURS, []) if run.idle is not None] for line in table}
    said = [f"{name} {median(idle):.1%}" for name, idle in shares.items() if idle]
    return (
        ["", f"Time in which Headrace's shard computed nothing although there was work: {', '.join(said)}."]
        if said
        else []
    )


def _said(verdict: Verdict) -> str:
    return f"{verdict.asked}: {({True: 'yes', False: 'no', None: 'not measured'})[verdict.holds]}"


def cell(spread: Spread | None) -> str:
    return "–" if spread is None else f"{number(spread.median)} ({number(spread.low)}–{number(spread.high)})"


def number(value: float) -> str:
    """Three digits at least, and none that a second run would change."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _first_line(reason: str) -> str:
    return reason.partition("\n")[0]
