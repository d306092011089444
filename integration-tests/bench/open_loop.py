"""An open-loop client of /generate_stream: requests come when they come, however long the others take."""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field

import aiohttp

from bench.workloads import Job


@dataclass(frozen=True)
class Arrival:
    """One request of an open-loop run."""

    at_s: float
    job: Job
    headers: dict[str, str] = field(default_factory=dict)
    # Seconds after which the client leaves; None: it stays.
    leaves_after_s: float | None = None


@dataclass
class Outcome:
    """What became of it. Times are seconds from its sending."""

    arrival: Arrival
    token_times: list[float] = field(default_factory=list)
    # The error event's type, or None.
    error: str | None = None
    answered_s: float = 0.0
    retry_after_s: float | None = None
    left: bool = False

    @property
    def whole(self) -> bool:
        return self.error is None and not self.left and len(self.token_times) == self.arrival.job.output_tokens

    @property
    def ttft_s(self) -> float:
        return self.token_times[0]

    @property
    def gaps_s(self) -> list[float]:
        return [after - before for before, after in zip(self.token_times, self.token_times[1:], strict=False)]


def poisson(jobs: list[Job], rate: float, seed: int = 0, **more: object) -> list[Arrival]:
    """Arrivals with exponential gaps, `rate` a second."""
    draw, at = random.Random(seed), 0.0
    arrivals = []
    for job in jobs:
        at += draw.expovariate(rate)
        arrivals.append(Arrival(at, job, **more))  # type: ignore[arg-type]
    return arrivals


async def _ask(session: aiohttp.ClientSession, url: str, arrival: Arrival, began: float) -> Outcome:
    await asyncio.sleep(max(0.0, began + arrival.at_s - time.perf_counter()))
    body = {
        "inputs": arrival.job.prompt,
        "parameters": {"max_new_tokens": arrival.job.output_tokens, "do_sample": False, "ignore_eos_token": True},
    }
    outcome, sent = Outcome(arrival), time.perf_counter()
    try:
        async with asyncio.timeout(arrival.leaves_after_s):
            async with session.post(f"{url}/generate_stream", json=body, headers=arrival.headers) as answer:
                if retry := answer.headers.get("retry-after"):
                    outcome.retry_after_s = float(retry)
                async for line in answer.content:
                    if line.startswith(b"data:"):
                        event = json.loads(line[5:])
                        if "error" in event:
                            outcome.error = event["error_type"]
                        else:
                            outcome.token_times.append(time.perf_counter() - sent)
    except TimeoutError:
        outcome.left = True
    outcome.answered_s = time.perf_counter() - sent
    return outcome


async def _run(url: str, arrivals: list[Arrival]) -> tuple[list[Outcome], float]:
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        began = time.perf_counter() + 0.1
        outcomes = await asyncio.gather(*(_ask(session, url, arrival, began) for arrival in arrivals))
        return list(outcomes), time.perf_counter() - began


def run(url: str, arrivals: list[Arrival]) -> tuple[list[Outcome], float]:
    """Every outcome, and the seconds until the last."""
    return asyncio.run(_run(url, arrivals))


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of all do not exceed; NaN of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
