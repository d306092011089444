"""Agrees on the size of the KV pool, allocates it, and runs the largest prompt step that it may be asked for.

On a GPU steps of all kinds come before that, with a small pool, to see what they need beside it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from headrace_server import rehearsal
from headrace_server.compute.interface import PoolPlan
from headrace_server.distributed.collective import Collective
from headrace_server.errors import CapacityError
from headrace_server.log import LOGGER
from headrace_server.memory import MIB, Limits, available_bytes, host_pool_size, pool_size
from headrace_server.runner import Runner
from headrace_server.step import Step


@dataclass(frozen=True)
class PoolReport:
    """What Warmup agreed. Bytes are of this rank."""

    num_blocks: int
    pool_bytes: int
    available_bytes: int  # before the pool was made
    step_us: int
    host_blocks: int
    swap_us: int  # of one block


def warm_up(runner: Runner, limits: Limits) -> PoolReport:
    """Replaces the pool, if there was one.

    Raises CapacityError, with both numbers, if what is asked does not fit.
    """
    runner.free_pool()
    compute, max_positions = runner.compute, runner.config.max_positions
    block_size = compute.block_size
    block_bytes = block_size * compute.kv_bytes_per_token
    rehearsal_blocks = -(-limits.max_batch_prefill_tokens // block_size) + limits.max_batch_size + 1
    needed = compute.worst_case(lambda: _rehearse(runner, limits, rehearsal_blocks))
    scratch = max(needed - rehearsal_blocks * block_bytes, 0)
    runner.free_pool()
    free, share = compute.available()
    available = max(free - scratch, 0)
    num_blocks = _agreed(
        compute.collective, lambda: pool_size(limits, available, share, block_size, block_bytes, max_positions)
    )
    served = min(limits.max_total_tokens or max_positions, num_blocks * block_size)
    host_blocks = compute.collective.least(host_pool_size(limits, available_bytes(), block_size, block_bytes, served))
    runner.prepare(replace(_plan(limits, num_blocks, served), host_blocks=host_blocks))
    swap_us = compute.swap_us()
    step_us = _run(runner, rehearsal.longest_prompts(limits, num_blocks, served, block_size))
    LOGGER.info(
        "KV pool: %d blocks of %d tokens, %d MiB of %d MiB available; a prompt step of %d tokens takes %d ms",
        num_blocks,
        block_size,
        num_blocks * block_bytes // MIB,
        available // MIB,
        limits.max_batch_prefill_tokens,
        step_us // 1000,
    )
    if limits.host_bytes:
        LOGGER.info(
            "host memory for preempted requests: %d blocks, %d of %d MiB asked for; a block is copied in %d µs",
            host_blocks,
            host_blocks * block_bytes // MIB,
            limits.host_bytes // MIB,
            swap_us,
        )
    return PoolReport(num_blocks, num_blocks * block_bytes, available, step_us, host_blocks, swap_us)


def _agreed(collective: Collective, num_blocks: Callable[[], int]) -> int:
    """What the rank with least room for them can have. Raises CapacityError on every rank if one has too little."""
    try:
        mine = num_blocks()
    except CapacityError:
        collective.least(0)
        raise
    least = collective.least(mine)
    if least == 0:
        raise CapacityError("another rank has too little memory for the KV cache; it says how much")
    return least


def _plan(limits: Limits, num_blocks: int, served: int) -> PoolPlan:
    step_tokens = limits.max_batch_prefill_tokens + limits.max_batch_size
    return PoolPlan(num_blocks, limits.max_batch_size, served, step_tokens)


def _rehearse(runner: Runner, limits: Limits, num_blocks: int) -> None:
    """All that takes memory beside weights and pool, with a pool as small as that allows: what makes steps faster, and
    beside it the largest prompt step, a token for as many rows as there can be, and every kind of step. Prompts of
    every size, too: whatever is compiled for a step is compiled now."""
    block_size, max_positions = runner.compute.block_size, runner.config.max_positions
    served = min(limits.max_total_tokens or max_positions, max_positions)
    runner.prepare(_plan(replace(limits, max_batch_size=max(limits.max_batch_size, 2)), num_blocks, served))
    runner.compute.rehearse()
    _run(runner, rehearsal.longest_prompts(limits, num_blocks, served, block_size))
    _run(runner, rehearsal.most_rows(limits, block_size))
    _run(runner, *rehearsal.every_kind(block_size))
    for step in rehearsal.every_size(limits, num_blocks, served, block_size):
        _run(runner, step)


def _run(runner: Runner, *steps: Step) -> int:
    """Microseconds that the steps take. Leaves no row behind."""
    began = time.perf_counter_ns()
    for step in steps:
        result = runner.execute(step)
        problem = result.error or next(iter(result.row_errors.values()), None)
        if not runner.compute.collective.least(int(problem is None)):
            problem = problem or "another rank says why"
            raise CapacityError(f"the warm-up step of {step.total_tokens} tokens failed: {problem}")
    elapsed = (time.perf_counter_ns() - began) // 1000
    runner.reset()
    return elapsed
