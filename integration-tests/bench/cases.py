"""What is measured side by side: a workload of `headrace bench`, weights of some width, and the figure that counts."""

from dataclasses import dataclass
from enum import Enum, StrEnum


class Weights(StrEnum):
    """How wide a server keeps its weights. What it computes with them is its own affair."""

    BF16 = "bf16"
    INT8 = "8-bit"
    INT4 = "4-bit"


class Unit(Enum):
    """The figure that counts, as tables name it."""

    OUTPUT = "output tok/s"
    PROMPT = "prompt tok/s"
    REQUESTS = "req/s"
    SECONDS = "s"

    @property
    def less_is_better(self) -> bool:
        return self is Unit.SECONDS


@dataclass(frozen=True)
class Asked:
    """What Headrace must reach. Shares are of the floor; a limit is in the case's unit."""

    of_floor: float | None = None
    limit: float | None = None
    goal: float | None = None
    # So many times vLLM's figure.
    of_vllm: float | None = None


@dataclass(frozen=True)
class Case:
    """`requests` of the workload, `concurrency` at a time."""

    name: str
    title: str
    # Empty: no load; the server's start, until its first token.
    workload: str
    requests: int
    concurrency: int
    unit: Unit
    asked: Asked
    weights: Weights = Weights.BF16


CASES = {
    case.name: case
    for case in (
        Case("start", "process start to first token", "", 1, 1, Unit.SECONDS, Asked(limit=3)),
        Case("seed", "seed mixture, 48 at once", "seed", 48, 48, Unit.OUTPUT, Asked(of_floor=0.75, of_vllm=1.6)),
        Case("decode", "decode, 48 at once", "decode", 48, 48, Unit.OUTPUT, Asked(limit=1500, goal=1800, of_vllm=2)),
        Case("one", "decode, one at a time", "decode", 3, 1, Unit.OUTPUT, Asked(of_floor=0.85)),
        Case(
            "prefill", "prefill, 16 x 1,024", "prefill", 16, 16, Unit.PROMPT, Asked(limit=5000, goal=7000, of_vllm=1.5)
        ),
        Case("prefix", "prefix, 32 sharing 900 tokens", "prefix", 32, 32, Unit.REQUESTS, Asked(goal=25, of_vllm=1.4)),
        Case("one-8bit", "one at a time, 8-bit", "decode", 3, 1, Unit.OUTPUT, Asked(limit=120), Weights.INT8),
        Case(
            "decode-8bit", "decode, 48 at once, 8-bit", "decode", 48, 48, Unit.OUTPUT, Asked(limit=2200), Weights.INT8
        ),
        Case("one-4bit", "one at a time, 4-bit", "decode", 3, 1, Unit.OUTPUT, Asked(limit=140, goal=160), Weights.INT4),
    )
}
