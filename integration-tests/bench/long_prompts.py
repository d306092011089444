"""`make bench-long-prompts`: do long prompts disturb those who already read their answers?

Sixteen streams read tokens from a router whose fake shard takes 20 ms a step; then the same while other clients send
prompts of 100,000 tokens' worth of text, one after another. Rounds alternate; the figure is how much the streams' time
between tokens grows at its 99th percentile. The prompts are refused as too long, but only tokenizing them can tell.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.server import HEADRACE, Server, embedded_model_dir

STREAMS = 16
STEP_US = 20_000
FAKE = ("--fake-shard", "--fake-step-us", str(STEP_US), "--log-level", "error")


def bench(url: str, *flags: object) -> subprocess.Popen:
    command = [HEADRACE, "bench", "--url", url, "--json", *flags]
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def figures(client: subprocess.Popen) -> dict:
    """What a client measured; what it said, if it was not even answered, is no reason to stop."""
    out, _ = client.communicate()
    return json.loads(out)


def measure(url: str, seconds: float, prompt_tokens: int, senders: int) -> tuple[dict, dict | None]:
    """The streams' figures, and those of who sends long prompts meanwhile."""
    tokens = int(seconds * 1e6 / STEP_US)
    beside = None
    if senders:
        long = ("--prompt-tokens", prompt_tokens, "--output-tokens", 1, "--warmup", 0)
        beside = bench(url, "--streams", senders, "--duration", seconds, *long)
        time.sleep(0.5)
    streams = bench(url, "--streams", STREAMS, "--requests", STREAMS, "--output-tokens", tokens, "--warmup", 0)
    return figures(streams), figures(beside) if beside else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--prompt-tokens", type=int, default=100_000)
    parser.add_argument("--senders", type=int, default=2, help="clients that send long prompts")
    args = parser.parse_args()
    router = Server(*FAKE, "--model-id", str(embedded_model_dir()), command="router")
    alone: list[float] = []
    disturbed: list[float] = []
    try:
        router.wait_until_ready()
        for _ in range(args.rounds):
            for senders, results in ((0, alone), (args.senders, disturbed)):
                streams, beside = measure(router.url, args.seconds, args.prompt_tokens, senders)
                itl = streams["itl_ms"]
                results.append(itl["p99"])
                line = f"{senders} senders: ITL p50 {itl['p50']:.2f}, p99 {itl['p99']:.2f}, max {itl['max']:.2f} ms"
                if beside:
                    sent = beside["failed"] + beside["whole"]
                    line += f"; {sent} prompts of {args.prompt_tokens} tokens: {' / '.join(beside['failures'])[:100]}"
                print(line, flush=True)
    finally:
        router.stop()
    growth = statistics.median(disturbed) / statistics.median(alone) - 1
    print(f"ITL p99, medians: {statistics.median(alone):.2f} and {statistics.median(disturbed):.2f} ms: {growth:+.1%}")


if __name__ == "__main__":
    main()
