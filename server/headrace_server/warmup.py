"""Agrees on the size of the KV pool, allocates it, and runs the largest prompt step that it may be asked for.

On a GPU steps of all kinds come before that, with a small pool, to see what they need beside it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, cast

from headrace_server import rehearsal
from headrace_server.compute.interface import PoolPlan
from headrace_server.distributed.collective import Collective, complaint
from headrace_server.errors import CapacityError, first_line, lacks_memory
from headrace_server.log import LOGGER
from headrace_server.memory import MIB, Limits, available_bytes, host_pool_size, pool_size
from headrace_server.runner import Runner
from headrace_server.step import Step

T = TypeVar("T")


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

    Raises CapacityError if what is asked does not fit, with both numbers, or if there is no memory for it; on every
    rank if on one. There is no pool then, and less may be asked for.
    """
    runner.free_pool()
    try:
        return _warm_up(runner, limits)
    except CapacityError:
        runner.free_pool()
        raise
    except Exception as error:
        runner.compute.collective.give_up(error)  # others may wait for this rank; one that is alone raises it
        raise


def _warm_up(runner: Runner, limits: Limits) -> PoolReport:
    compute, max_positions = runner.compute, runner.config.max_positions
    block_size = compute.block_size
    block_bytes = block_size * compute.kv_bytes_per_token
    rehearsal_blocks = -(-limits.max_batch_prefill_tokens // block_size) + limits.max_batch_size + 1
    needed = compute.worst_case(lambda: _rehearse(runner, limits, rehearsal_blocks))
    scratch = max(needed - rehearsal_blocks * block_bytes, 0)
    runner.free_pool()
    free, share = compute.available()
    available = max(free - scratch, 0)
    fitting = _together(
        compute.collective,
        "a KV pool",
        lambda: pool_size(limits, available, share, block_size, block_bytes, max_positions),
    )
    num_blocks = compute.collective.least(fitting)
    served = min(limits.max_total_tokens or max_positions, num_blocks * block_size)
    host_blocks = compute.collective.least(host_pool_size(limits, available_bytes(), block_size, block_bytes, served))
    _prepare(runner, replace(_plan(limits, num_blocks, served), host_blocks=host_blocks))
    swap_us = _together(compute.collective, "copies of blocks in host memory", compute.swap_us)
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


def _together(collective: Collective, what: str, part: Callable[[], T]) -> T:
    """What `part` gives, in which nobody waits for another rank. Raises CapacityError on every rank, with the words of
    the one that lacks it, if there is no memory for `what` on all of them."""
    gave, lack = None, ""
    try:
        gave = part()
    except CapacityError as error:
        lack = str(error)
    except Exception as error:
        if not lacks_memory(error):
            raise
        lack = f"there is no memory for {what}: {first_line(error)}"
    if problem := complaint(collective, lack):
        raise CapacityError(problem)
    return cast(T, gave)


def _prepare(runner: Runner, plan: PoolPlan) -> None:
    compute = runner.compute
    block_mib = compute.block_size * compute.kv_bytes_per_token / MIB
    host = f" and {plan.host_blocks * block_mib:.0f} MiB of host memory" if plan.host_blocks else ""
    what = f"a KV pool of {plan.num_blocks} blocks ({plan.num_blocks * block_mib:.0f} MiB){host}"
    _together(compute.collective, what, lambda: runner.prepare(plan))


def _plan(limits: Limits, num_blocks: int, served: int) -> PoolPlan:
    step_tokens = limits.max_batch_prefill_tokens + limits.max_batch_size
    return PoolPlan(num_blocks, limits.max_batch_size, served, step_tokens)


def _rehearse(runner: Runner, limits: Limits, num_blocks: int) -> None:
    """All that takes memory beside weights and pool, with a pool as small as that allows: what makes steps faster, and
    beside it the largest prompt step, a token for as many rows as there can be, and every kind of step. Prompts of
    every size, too: whatever is compiled for a step is compiled now."""
    block_size, max_positions = runner.compute.block_size, runner.config.max_positions
    served = min(limits.max_total_tokens or max_positions, max_positions)
    _prepare(runner, _plan(replace(limits, max_batch_size=max(limits.max_batch_size, 2)), num_blocks, served))
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
        _together(runner.compute.collective, "a step", partial(_execute, runner, step))
    elapsed = (time.perf_counter_ns() - began) // 1000
    runner.reset()
    return elapsed


def _execute(runner: Runner, step: Step) -> None:
    """Of several ranks one that has no memory for it goes through it with the others, and raises CapacityError then."""
    result = runner.execute(step)
    problem = result.error or next(iter(result.row_errors.values()), None)
    if problem is not None:
        raise CapacityError(f"the warm-up step of {step.total_tokens} tokens failed: {problem}")
