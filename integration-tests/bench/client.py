"""A closed-loop client of /generate_stream, and what it saw."""

import asyncio
import json
import statistics
import time
from dataclasses import dataclass, field

import aiohttp

from bench.workloads import Job, Workload


@dataclass
class Seen:
    """One answer: seconds from the request to each token."""

    times: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Figures:
    output_tokens_per_s: float
    prompt_tokens_per_s: float
    requests_per_s: float
    ttft_mean_s: float
    latency_mean_s: float

    def line(self) -> str:
        return (
            f"{self.output_tokens_per_s:8.1f} output tok/s  {self.requests_per_s:6.2f} req/s  "
            f"first token {self.ttft_mean_s:6.2f} s  latency {self.latency_mean_s:6.2f} s"
        )


def figures(workload: Workload, seen: list[Seen], wall_s: float, prompt_tokens: int) -> Figures:
    return Figures(
        output_tokens_per_s=sum(len(one.times) for one in seen) / wall_s,
        prompt_tokens_per_s=prompt_tokens / wall_s,
        requests_per_s=len(seen) / wall_s,
        ttft_mean_s=statistics.mean(one.times[0] for one in seen),
        latency_mean_s=statistics.mean(one.times[-1] for one in seen),
    )


async def _ask(session: aiohttp.ClientSession, url: str, job: Job) -> Seen:
    body = {
        "inputs": job.prompt,
        "parameters": {"max_new_tokens": job.output_tokens, "do_sample": False, "ignore_eos_token": True},
    }
    seen, began = Seen(), time.perf_counter()
    async with session.post(f"{url}/generate_stream", json=body) as answer:
        async for line in answer.content:
            if line.startswith(b"data:"):
                event = json.loads(line[5:])
                if "error" in event:
                    raise RuntimeError(f"the server answered {event}")
                seen.times.append(time.perf_counter() - began)
    if len(seen.times) != job.output_tokens:
        raise RuntimeError(f"asked for {job.output_tokens} tokens, got {len(seen.times)}: the figures would lie")
    return seen


async def _run(url: str, workload: Workload) -> tuple[list[Seen], float]:
    gate = asyncio.Semaphore(workload.concurrency)
    connector, limit = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=3600)
    async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:

        async def one(job: Job) -> Seen:
            async with gate:
                return await _ask(session, url, job)

        await _ask(session, url, Job(workload.jobs[0].prompt, 4))  # warm
        began = time.perf_counter()
        seen = await asyncio.gather(*(one(job) for job in workload.jobs))
        return seen, time.perf_counter() - began


def measure(url: str, workload: Workload, prompt_tokens: int) -> Figures:
    """Runs the workload once against a server of TGI's API. Fails if any answer is short or an error."""
    seen, wall_s = asyncio.run(_run(url, workload))
    return figures(workload, seen, wall_s, prompt_tokens)
