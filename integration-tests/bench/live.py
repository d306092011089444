"""`make bench-live`: the scheduler's promises on the real server with the small model.

Run it on an otherwise idle machine; each part prints a few lines. Parts: `batching` (iteration-level against groups of
8, the seed mixture at saturation), `overload` (goodput at twice the knee; how long refusals, /livez and /readyz take
then), `fair` (a flood and a quiet tenant), `trace` (60 s with clients that leave and a pool that is short, replayed),
`predict` (60 s, simulated with the fitted cost).
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import workloads
from bench.cases import CASES
from bench.load import Client
from bench.open_loop import Arrival, Outcome, percentile, poisson, run
from bench.probe import HEALTH, Probe, refused
from bench.workloads import Job
from harness.server import HEADRACE, Server, embedded_model_dir


def mixture(count: int, seed: int = 0) -> list[Job]:
    return workloads.mixture(embedded_model_dir() / "tokenizer.json", count, seed)


def with_server(flags: list[str], arrivals: list[Arrival]) -> tuple[list[Outcome], float]:
    server = Server(*flags)
    try:
        server.wait_until_ready()
        return run(server.url, arrivals)
    finally:
        server.stop()


def batching(dtype: str) -> None:
    """The same requests at once, under `static` and `fcfs`."""
    client = Client(HEADRACE, embedded_model_dir() / "tokenizer.json")
    case = replace(CASES["seed"], requests=64, concurrency=64)
    runs = {}
    for name, flags in {
        "static, groups of 8": ["--scheduling-policy", "static", "--group-size", "8", "--max-batch-size", "64"],
        "fcfs, 64 rows": ["--max-batch-size", "64"],
        "fcfs, 8 rows": ["--max-batch-size", "8"],
    }.items():
        server = Server("--dtype", dtype, *flags)
        try:
            server.wait_until_ready()
            runs[name] = run = client.load(server.url, case, seed=1)
        finally:
            server.stop()
        print(
            f"{name:20} {run.output_tokens_per_s:8.1f} output tok/s  {run.requests_per_s:6.2f} req/s  "
            f"first token {run.ttft_p50 / 1e3:6.2f} s  answer {run.e2e_p50 / 1e3:6.2f} s (medians)"
        )
    base = runs["static, groups of 8"].output_tokens_per_s
    for name, run in runs.items():
        print(f"{name:20} {run.output_tokens_per_s / base:5.2f}x the throughput of static")


def goodput(outcomes: list[Outcome], deadline_s: float, wall_s: float) -> float:
    """Answers within the deadline, a second."""
    good = [outcome for outcome in outcomes if outcome.whole and outcome.token_times[-1] <= deadline_s]
    return len(good) / wall_s


def capacity(flags: list[str]) -> float:
    """Requests of the mixture a second when there are always some that wait: the most that these flags can serve."""
    outcomes, wall = with_server(flags, [Arrival(0.0, job) for job in mixture(96)])
    return len(outcomes) / wall


def overload(dtype: str, knee: float | None, deadline_s: float) -> None:
    """On 16 rows, at the knee and at twice that rate. An answer counts if it is whole within the deadline; each request
    says that it wants its first step in 0.4 of that, and what cannot have it is refused at once.

    The knee is 90 % of what 16 rows can serve, unless it is given.
    """
    flags = ["--dtype", dtype, "--max-batch-size", "16"]
    if knee is None:
        knee = 0.9 * capacity(flags)
        print(f"knee: {knee:.2f} req/s", flush=True)
    headers = {"x-deadline-ms": str(int(400 * deadline_s))}
    results = {}
    for rate in (knee, 2 * knee):
        arrivals = poisson(mixture(int(60 * rate)), rate, headers=headers)
        server = Server(*flags)
        try:
            server.wait_until_ready()
            with Probe(server.url, HEALTH) as health, Probe(server.url, [refused(headers)]) as probe:
                outcomes, wall = run(server.url, arrivals)
        finally:
            server.stop()
        refusals = [outcome for outcome in outcomes if outcome.error == "overloaded"]
        results[rate] = goodput(outcomes, deadline_s, max(wall, 60.0))
        drains = [(outcome.retry_after_s or 0.0, drain_s(outcomes, outcome)) for outcome in refusals]
        ratios = [said / true for said, true in drains if true > 0.5]
        took = probe.took_ms["/generate"]
        within = sum(0.5 <= ratio <= 2 for ratio in ratios)
        print(
            f"{rate:5.2f} req/s: {len(outcomes)} sent, {results[rate]:.3f} good answers/s, {len(refusals)} refused; "
            f"another client's {len(took)} refusals took {percentile(took, 0.5):.1f} ms (p50), "
            f"{percentile(took, 0.99):.1f} ms (p99); Retry-After within 2x of the time in which the queue "
            f"drained: {within} of {len(ratios)}",
            flush=True,
        )
        for path, took in health.took_ms.items():
            print(
                f"{path:8} said 200 {len(took)} times, in {percentile(took, 0.5):.1f} ms (p50), "
                f"{percentile(took, 0.99):.1f} ms (p99), {max(took):.1f} ms at most",
                flush=True,
            )
    print(f"goodput at twice the knee: {results[2 * knee] / results[knee]:.1%} of that at the knee")


def drain_s(outcomes: list[Outcome], refused: Outcome) -> float:
    """From a refusal to the first token of the last request that waited then."""
    now = refused.arrival.at_s
    firsts = [one.arrival.at_s + one.ttft_s for one in outcomes if one.token_times and one.arrival.at_s < now]
    return max(firsts, default=now) - now


def fair(dtype: str) -> None:
    """A floods with 200 requests at once, B sends one a second; B's first tokens alone, under fair and under fcfs."""
    quiet = [Arrival(3.0 + second, Job("Hello there, ", 8), {"x-tenant-id": "B"}) for second in range(30)]
    flood = [Arrival(0.0, job, {"x-tenant-id": "A"}) for job in mixture(120)]
    for name, policy, arrivals in [
        ("alone", "fair", quiet),
        ("fair", "fair", flood + quiet),
        ("fcfs", "fcfs", flood + quiet),
    ]:
        outcomes, wall = with_server(["--dtype", dtype, "--scheduling-policy", policy], arrivals)
        b = [one for one in outcomes if one.arrival.headers["x-tenant-id"] == "B"]
        a = [one for one in outcomes if one.arrival.headers["x-tenant-id"] == "A"]
        first = [one.ttft_s * 1000 for one in b if one.whole]
        gaps = [gap * 1000 for one in a for gap in one.gaps_s]
        tokens = sum(len(one.token_times) for one in outcomes)
        print(
            f"{name:6} B: {len(first)}/{len(b)} answered, first token p50 {percentile(first, 0.5):.0f} ms, "
            f"p99 {percentile(first, 0.99):.0f} ms; A: step p99 {percentile(gaps, 0.99):.0f} ms; "
            f"{tokens / wall:.1f} tok/s"
        )


def record(dtype: str, rate: float, flags: list[str], *views: list[str]) -> None:
    """Records 60 s of the mixture, every ninth client leaving, and shows the trace to `headrace simulate`."""
    arrivals = poisson(mixture(int(60 * rate)), rate)
    for place in range(0, len(arrivals), 9):
        arrivals[place] = Arrival(arrivals[place].at_s, arrivals[place].job, {}, leaves_after_s=1.5)
    with tempfile.TemporaryDirectory() as directory:
        base = str(Path(directory) / "run")
        outcomes, wall = with_server(["--dtype", dtype, "--trace", base, *flags], arrivals)
        left = sum(outcome.left for outcome in outcomes)
        whole = sum(outcome.whole for outcome in outcomes)
        print(f"{rate} req/s, {wall:.0f} s: {whole} whole answers, {left} clients left", flush=True)
        for view in views:
            subprocess.run([HEADRACE, "simulate", "--replay", base, *view], check=False)


def trace(dtype: str) -> None:
    """More than a short pool can hold, so that rows are preempted: every plan again, byte for byte."""
    record(dtype, 2.0, ["--max-batch-total-tokens", "6000", "--max-total-tokens", "1024"], [])


def predict(dtype: str) -> None:
    """What the simulator predicts for a run, with the cost model fitted to it, beside what was."""
    record(dtype, 1.0, [], [], ["--what-if", "none"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--parts", default="batching,overload,fair,trace,predict", help="comma-separated")
    parser.add_argument("--knee", type=float, help="requests a second of `overload`; default: measured")
    parser.add_argument("--deadline", type=float, default=30.0, help="seconds an answer may take (overload)")
    args = parser.parse_args()
    for part in args.parts.split(","):
        print(f"\n{part}", flush=True)
        if part == "overload":
            overload(args.dtype, args.knee, args.deadline)
        else:
            {"batching": batching, "fair": fair, "trace": trace, "predict": predict}[part](args.dtype)


if __name__ == "__main__":
    main()
