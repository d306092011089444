"""Agrees on the size of the KV pool, allocates it, and runs the largest prompt step that it may be asked for."""

import time
from dataclasses import dataclass

import numpy as np

from headrace_server.compute.interface import PoolPlan
from headrace_server.errors import CapacityError
from headrace_server.log import LOGGER
from headrace_server.memory import MIB, Limits, pool_size
from headrace_server.runner import Runner
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import NewRow, Step


@dataclass(frozen=True)
class PoolReport:
    """What Warmup agreed. Bytes are of this rank."""

    num_blocks: int
    pool_bytes: int
    available_bytes: int  # before the pool was made
    step_us: int


def warm_up(runner: Runner, limits: Limits) -> PoolReport:
    """Replaces the pool, if there was one.

    Raises CapacityError, with both numbers, if what is asked does not fit.
    """
    runner.free_pool()
    available, share = runner.compute.available()
    block_size, max_positions = runner.compute.block_size, runner.config.max_positions
    block_bytes = block_size * runner.compute.kv_bytes_per_token
    num_blocks = pool_size(limits, available, share, block_size, block_bytes, max_positions)
    served = min(limits.max_total_tokens or max_positions, num_blocks * block_size)
    step_tokens = limits.max_batch_prefill_tokens + limits.max_batch_size
    runner.prepare(PoolPlan(num_blocks, limits.max_batch_size, served, step_tokens))
    step_us = _worst_step(runner, limits, num_blocks, served)
    LOGGER.info(
        "KV pool: %d blocks of %d tokens, %d MiB of %d MiB available; a prompt step of %d tokens takes %d ms",
        num_blocks,
        block_size,
        num_blocks * block_bytes // MIB,
        available // MIB,
        limits.max_batch_prefill_tokens,
        step_us // 1000,
    )
    return PoolReport(num_blocks, num_blocks * block_bytes, available, step_us)


def _worst_step(runner: Runner, limits: Limits, num_blocks: int, served: int) -> int:
    """Microseconds of one step with as many prompt tokens as a step may have. Leaves no row behind."""
    step = _prompt_step(runner, limits, num_blocks, served)
    began = time.perf_counter_ns()
    result = runner.execute(step)
    elapsed = (time.perf_counter_ns() - began) // 1000
    runner.reset()
    if problem := result.error or next(iter(result.row_errors.values()), None):
        raise CapacityError(f"the warm-up step of {limits.max_batch_prefill_tokens} prompt tokens failed: {problem}")
    return elapsed


def _prompt_step(runner: Runner, limits: Limits, num_blocks: int, served: int) -> Step:
    """As few and as long prompts as hold max_batch_prefill_tokens, within rows and pool."""
    block_size = runner.compute.block_size
    lengths: list[int] = []
    blocks_left, tokens_left = num_blocks, limits.max_batch_prefill_tokens
    while len(lengths) < limits.max_batch_size and blocks_left and tokens_left:
        lengths.append(min(served, tokens_left, blocks_left * block_size))
        tokens_left -= lengths[-1]
        blocks_left -= -(-lengths[-1] // block_size)
    rows = np.arange(len(lengths))
    blocks = -(-np.array(lengths) // block_size)
    greedy = SamplingParameters()
    return Step(
        number=0,
        new_rows=tuple(NewRow(row, 0, np.zeros(length, np.int64), 0, 0, greedy) for row, length in enumerate(lengths)),
        chunk_rows=rows,
        chunk_tokens=np.array(lengths),
        decode_rows=np.empty(0, np.int64),
        table_lengths=blocks,
        table_blocks=np.arange(blocks.sum()),
    )
