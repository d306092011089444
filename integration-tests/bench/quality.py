"""`make bench-quality`: what smaller weights and a smaller KV cache cost and bring, for each way a CPU can keep them.

Every variant reads the same prose of ours (`harness/prose.py`) and tells the log-probability of each token: perplexity,
and how far the log-probabilities lie from those of float32. Beside it the speed of one request alone, and the memory of
the shard. Variants are measured one after another, so the speeds are for orientation; `make bench` compares speeds.
"""

import argparse
import json
import math
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.prose import TEXTS
from harness.server import Server

VARIANTS = {
    "float32": ("--dtype", "float32"),
    "bfloat16": ("--dtype", "bfloat16"),
    "int8": ("--dtype", "bfloat16", "--quantize", "int8"),
    "int4": ("--dtype", "bfloat16", "--quantize", "int4"),
    "float32-kv8": ("--dtype", "float32", "--kv-cache-dtype", "int8"),
    "bfloat16-kv8": ("--dtype", "bfloat16", "--kv-cache-dtype", "int8"),
    "int8-kv8": ("--dtype", "bfloat16", "--quantize", "int8", "--kv-cache-dtype", "int8"),
}
"""Name → flags; the name says the type of weights, then that of the cache where it is not the same or bfloat16."""

ANSWER_TOKENS = 128
ROUNDS = 3


@dataclass(frozen=True)
class Quality:
    """One variant's figures."""

    variant: str
    perplexity: float
    mean_shift: float  # of log-probabilities, against float32
    agreement: float  # share of tokens whose log-probability is within 0.1 of float32's
    tokens_per_second: float  # one request alone, the best of a few
    shard_mb: float  # resident memory of the shard's process, KV cache included


def logprobs(server: Server) -> list[float]:
    """Of every token of the prose but the first of each paragraph."""
    values: list[float] = []
    for text in TEXTS:
        answer = server.generate(text, max_new_tokens=1, decoder_input_details=True)
        values += [token["logprob"] for token in answer["details"]["prefill"][1:]]
    return values


def tokens_per_second(server: Server) -> float:
    """From the first token of an answer to its last."""
    rates = []
    for _ in range(ROUNDS):
        took = []
        for count in (1, ANSWER_TOKENS + 1):
            began = time.perf_counter()
            server.generate(TEXTS[0][:200], max_new_tokens=count, ignore_eos_token=True)
            took.append(time.perf_counter() - began)
        rates.append(ANSWER_TOKENS / (took[1] - took[0]))
    return max(rates)


def measure(model_id: str, variants: dict[str, tuple[str, ...]]) -> list[Quality]:
    exact: list[float] = []
    measured = []
    for variant, flags in variants.items():
        server = Server("--model-id", model_id, "--enable-prefill-logprobs", *flags)
        try:
            server.wait_until_ready()
            rate = tokens_per_second(server)
            values = logprobs(server)
            exact = exact or values
            shifts = [abs(ours - theirs) for ours, theirs in zip(values, exact, strict=True)]
            measured.append(
                Quality(
                    variant,
                    perplexity=math.exp(-statistics.mean(values)),
                    mean_shift=statistics.mean(shifts),
                    agreement=sum(shift <= 0.1 for shift in shifts) / len(shifts),
                    tokens_per_second=rate,
                    shard_mb=server.shard().memory_info().rss / 1e6,
                )
            )
        finally:
            server.stop()
    return measured


def weights_of(variant: str) -> str:
    return variant.removesuffix("-kv8")


def cache_of(variant: str) -> str:
    """The type of the cache."""
    if variant.endswith("-kv8"):
        return "int8"
    return "float32" if variant == "float32" else "bfloat16"


def table(measured: list[Quality]) -> str:
    """As Markdown."""
    lines = [
        "| weights | KV | perplexity | mean shift of log-probabilities | within 0.1 | tok/s alone | shard, MB |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {weights_of(q.variant)} | {cache_of(q.variant)} | {q.perplexity:.3f} | {q.mean_shift:.4f} "
        f"| {q.agreement:.1%} | {q.tokens_per_second:.1f} | {q.shard_mb:.0f} |"
        for q in measured
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model-id", default="embedded")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), help="float32 comes first")
    parser.add_argument("--json", action="store_true", help="figures as JSON instead of a table")
    arguments = parser.parse_args()
    chosen = {name: flags for name, flags in VARIANTS.items() if name in {"float32", *arguments.variants}}
    measured = measure(arguments.model_id, chosen)
    print(json.dumps([asdict(quality) for quality in measured], indent=1) if arguments.json else table(measured))


if __name__ == "__main__":
    main()
