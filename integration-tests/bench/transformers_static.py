"""The peer: transformers' generate with static batches, in this process.

A batch is padded on the left and runs until its longest answer is done; a request's tokens count as seen when its batch
ends, which is what a server built on it could send without further machinery.
"""

import time

import torch

from bench.client import Figures, Seen, figures
from bench.workloads import Job, Workload
from harness.reference import Reference, exactly


@torch.inference_mode()
def _batch(reference: Reference, dtype: torch.dtype, jobs: list[Job]) -> None:
    tokenizer = reference.tokenizer
    tokenizer.padding_side = "left"
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    given = tokenizer([job.prompt for job in jobs], return_tensors="pt", padding=True)
    longest = max(job.output_tokens for job in jobs)
    reference.model(dtype).generate(**given, generation_config=exactly(longest))


def measure(reference: Reference, dtype: torch.dtype, workload: Workload, group: int, prompt_tokens: int) -> Figures:
    """Runs the workload once, `group` jobs to a batch, in order."""
    seen: list[Seen] = []
    _batch(reference, dtype, [Job(workload.jobs[0].prompt, 4)])  # warm
    began = time.perf_counter()
    for start in range(0, len(workload.jobs), group):
        jobs = workload.jobs[start : start + group]
        arrived = time.perf_counter() if workload.concurrency == 1 else began
        _batch(reference, dtype, jobs)
        done = time.perf_counter() - arrived
        seen += [Seen([done] * job.output_tokens) for job in jobs]
    return figures(workload, seen, time.perf_counter() - began, prompt_tokens)
