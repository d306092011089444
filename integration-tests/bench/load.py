"""One run of `headrace bench`, the client of every server here."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench import idle
from bench.cases import Case, Unit

# Under which every server is asked for its model.
MODEL = "tgi"


class Invalid(Exception):
    """The run says nothing about the server's speed: requests failed, or answers were cut short."""


@dataclass(frozen=True)
class Run:
    """Times in milliseconds."""

    output_tokens: int
    output_tokens_per_s: float
    prompt_tokens_per_s: float
    requests_per_s: float
    seconds: float
    ttft_p50: float
    ttft_p99: float
    tpot_p50: float
    itl_p99: float
    e2e_p50: float
    # Share of the time with something to do in which the shard computed nothing; only Headrace says it.
    idle: float | None = None

    def figure(self, case: Case) -> float:
        match case.unit:
            case Unit.OUTPUT:
                return self.output_tokens_per_s
            case Unit.PROMPT:
                return self.prompt_tokens_per_s
            case Unit.REQUESTS:
                return self.requests_per_s
            case Unit.SECONDS:
                return self.seconds

    def as_json(self) -> dict[str, float | None]:
        return asdict(self)


def run_of(report: dict[str, Any]) -> Run:
    """What a report says. Refuses one with an answer that failed or has another length: the rest says nothing."""
    if report["failed"] or report["short"] or report["long"]:
        causes = "; ".join(f"{count} x {cause}" for cause, count in report["failures"].items())
        raise Invalid(
            f"{report['failed']} requests failed{': ' if causes else ''}{causes}; of {report['whole']} answers "
            f"{report['short']} were short and {report['long']} long"
        )
    seconds = report["seconds"]
    return Run(
        output_tokens=report["output_tokens"],
        output_tokens_per_s=report["output_tokens_per_s"],
        prompt_tokens_per_s=report["prompt_tokens"] / seconds,
        requests_per_s=report["requests_per_s"],
        seconds=seconds,
        ttft_p50=report["ttft_ms"]["p50"],
        ttft_p99=report["ttft_ms"]["p99"],
        tpot_p50=report["tpot_ms"]["p50"],
        itl_p99=report["itl_ms"]["p99"],
        e2e_p50=report["e2e_ms"]["p50"],
    )


@dataclass(frozen=True)
class Client:
    """Every server is asked over OpenAI's completions, because all of them have it and say there how many tokens
    there were."""

    headrace: Path
    tokenizer: Path

    def load(self, url: str, case: Case, seed: int) -> Run:
        """The case once. Servers keep prefixes: another seed asks what no run asked before."""
        load = ["--workload", case.workload, "--requests", case.requests, "--concurrency", case.concurrency]
        before = idle.read(url)
        run = run_of(self._report(url, *load, "--tokenizer", self.tokenizer, "--seed", seed))
        after = idle.read(url)
        return replace(run, idle=after.idle_share_since(before) if before and after else None)

    def first_token(self, url: str, began: float) -> Run:
        """Asks a server that was started at `began` (monotonic) for one token; `seconds` are since then. They hold this
        client's own start, a few hundredths."""
        asked = ["--prompt", "Hello", "--output-tokens", 1, "--requests", 1, "--concurrency", 1, "--warmup", 0]
        report = self._report(url, *asked)
        return run_of({**report, "seconds": time.monotonic() - began})

    def _report(self, url: str, *flags: object) -> dict[str, Any]:
        words = [self.headrace, "bench", "--url", url, "--api", "openai", "--model", MODEL, "--json", "-", *flags]
        answer = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if not answer.stdout.strip():
            raise Invalid(f"headrace bench: {answer.stderr.strip()[-500:]}")
        report: dict[str, Any] = json.loads(answer.stdout)
        return report
