"""The best that a case could do on this machine, whoever serves it.

A step that decodes must read the weights once and each row's KV once, so it takes at least (weights + KV) ÷ B, where B
is the machine's read bandwidth. A prompt token takes at least the FLOP of the linear layers ÷ F. Prompt tokens that
rows share are computed once and their KV is read once. Steps only decode or only prefill here: a server that does both
in one step hides part of one behind the other, and may come nearer than 100 %, or beyond.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.cases import Case, Unit
from bench.shape import Shape


@dataclass(frozen=True)
class Machine:
    """`bandwidth`: bytes a second that all cores read; `flops`: of bfloat16 products, a second."""

    bandwidth: float
    flops: float


@dataclass(frozen=True)
class Ask:
    """One request: tokens of its prompt, those among them that all requests share, and tokens of its answer."""

    prompt: int
    output: int
    shared: int = 0


def floor(case: Case, shape: Shape, machine: Machine, output_tokens: int) -> float | None:
    """In the case's unit; None of a start. `output_tokens` of the whole run tell how many of a mixture were long."""
    if case.unit is Unit.SECONDS:
        return None
    asks = _asks(case, output_tokens)
    if case.concurrency == 1:
        # The prompt's 32 tokens and the KV of one row are lost in the weights.
        seconds = sum(one.output for one in asks) * shape.weight_bytes(case.weights) / machine.bandwidth
    else:
        seconds = _decode_s(case, shape, machine, asks) + _prompt_s(shape, machine, asks)
    match case.unit:
        case Unit.OUTPUT:
            return sum(one.output for one in asks) / seconds
        case Unit.PROMPT:
            return sum(one.prompt for one in asks) / seconds
        case _:
            return len(asks) / seconds


def _decode_s(case: Case, shape: Shape, machine: Machine, asks: Sequence[Ask]) -> float:
    """All at once. The first token of each answer comes from the prompt's last step."""
    weights, total = shape.weight_bytes(case.weights), 0.0
    for generated in range(1, max(one.output for one in asks)):
        rows = [one for one in asks if one.output > generated]
        kv_tokens = max(one.shared for one in rows) + sum(one.prompt - one.shared + generated for one in rows)
        total += (weights + kv_tokens * shape.kv_bytes) / machine.bandwidth
    return total


def _prompt_s(shape: Shape, machine: Machine, asks: Sequence[Ask]) -> float:
    tokens = max(one.shared for one in asks) + sum(one.prompt - one.shared for one in asks)
    return tokens * shape.prompt_flop / machine.flops


def _asks(case: Case, output_tokens: int) -> list[Ask]:
    """The requests of the case, as `headrace bench` makes them."""
    return _SHAPES[case.workload](case.requests, output_tokens)


def _mixture(requests: int, output_tokens: int) -> list[Ask]:
    """50 tokens in and 20 out, or 500 in and 200 out: as many long ones as make so many tokens."""
    long = round((output_tokens - 20 * requests) / 180)
    return [Ask(500, 200)] * long + [Ask(50, 20)] * (requests - long)


_SHAPES: dict[str, Callable[[int, int], list[Ask]]] = {
    "seed": _mixture,
    "decode": lambda requests, _: [Ask(32, 256)] * requests,
    "prefill": lambda requests, _: [Ask(1024, 4)] * requests,
    "prefix": lambda requests, _: [Ask(930, 32, shared=900)] * requests,
}
