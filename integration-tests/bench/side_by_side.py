"""`make bench`: Headrace beside transformers' static batching, A B A B, medians and ratios.

Run both on an otherwise idle machine. Workloads: `one` (32/128 tokens, one at a time), `decode` (48 at once, 32/256),
`seed` (48 at once, half 50/20, half 500/200). The peer runs each in batches of 8 and of all 48:
the better counts.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from bench import client, transformers_static
from bench.client import Figures
from bench.workloads import Workload, build
from harness.reference import Reference
from harness.server import Server, embedded_model_dir

COUNTS = {"one": 4, "decode": 48, "seed": 48}


def run_headrace(workload: Workload, dtype: str, prompt_tokens: int) -> Figures:
    server = Server("--dtype", dtype)
    try:
        server.wait_until_ready()
        return client.measure(server.url, workload, prompt_tokens)
    finally:
        server.stop()


def run_transformers(
    reference: Reference, workload: Workload, dtype: str, sizes: list[int], prompt_tokens: int
) -> Figures:
    groups = [1] if workload.concurrency == 1 else sizes
    runs = [
        transformers_static.measure(reference, getattr(torch, dtype), workload, group, prompt_tokens)
        for group in groups
    ]
    return max(runs, key=lambda run: run.output_tokens_per_s)


def median(runs: list[Figures]) -> Figures:
    """The run with the median throughput."""
    return sorted(runs, key=lambda run: run.output_tokens_per_s)[len(runs) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each side runs each workload (3)")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--workloads", default="one,decode,seed", help="comma-separated (one,decode,seed)")
    parser.add_argument("--groups", default="8,48", help="batch sizes of the peer, the best counts (8,48)")
    args = parser.parse_args()
    sizes = [int(size) for size in args.groups.split(",")]

    model_dir = embedded_model_dir()
    reference = Reference(model_dir)
    print(f"{args.dtype}, {torch.get_num_threads()} threads, {args.rounds} rounds each, medians")
    for name in args.workloads.split(","):
        workload = build(name, model_dir / "tokenizer.json", COUNTS[name])
        prompt_tokens = sum(len(reference.ids(job.prompt)) for job in workload.jobs)
        sides: dict[str, tuple[Callable[[], Figures], list[Figures]]] = {
            "headrace": (partial(run_headrace, workload, args.dtype, prompt_tokens), []),
            "transformers": (partial(run_transformers, reference, workload, args.dtype, sizes, prompt_tokens), []),
        }
        for _ in range(args.rounds):
            for run, results in sides.values():
                results.append(run())
        ours, theirs = (median(results) for _, results in sides.values())
        spread = [
            f"{side} {min(speeds):.1f}–{max(speeds):.1f}"
            for side, (_, results) in sides.items()
            for speeds in [[run.output_tokens_per_s for run in results]]
        ]
        print(f"\n{name}: {len(workload.jobs)} requests, {workload.concurrency} at once")
        print(f"  headrace      {ours.line()}")
        print(f"  transformers  {theirs.line()}")
        print(
            f"  ratio         {ours.output_tokens_per_s / theirs.output_tokens_per_s:.2f}x tokens/s, "
            f"{theirs.latency_mean_s / ours.latency_mean_s:.2f}x shorter latency   ({'; '.join(spread)} tok/s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
