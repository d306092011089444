"""A step's rows as one flat batch: no padding, chunks first, then decodes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_server.errors import ProtocolError
from headrace_server.rows import Rows
from headrace_server.step import Ints, Step


@dataclass(frozen=True, slots=True)
class StepRows:
    """All rows of a step, also those that fail, in the step's order: chunks, then decodes."""

    rows: Ints  # [rows]
    num_tokens: Ints  # [rows] tokens that each computes
    starts: Ints  # [rows] position of the first one
    sampling: NDArray[np.bool_]  # [rows] it reaches the end of its known tokens, so it samples
    sampling_rows: Ints  # [sampling rows] which those are
    tables: NDArray[np.int32]  # [rows, longest table] block ids, 0 past a table's end
    num_chunks: int

    @property
    def decodes(self) -> Ints:
        """The rows that decode."""
        return self.rows[self.num_chunks :]

    def take(self, healthy: NDArray[np.bool_]) -> "StepRows":
        """Only the rows where `healthy`."""
        return StepRows(
            self.rows[healthy],
            self.num_tokens[healthy],
            self.starts[healthy],
            self.sampling[healthy],
            self.rows[healthy & self.sampling],
            self.tables[healthy],
            int(healthy[: self.num_chunks].sum()),
        )


@dataclass(frozen=True, slots=True)
class Pool:
    """What Warmup agreed, as far as a row can exceed it."""

    block_size: int  # tokens
    num_blocks: int
    positions: int  # of the longest sequence


@dataclass(frozen=True, slots=True)
class Batch:
    """What a model reads: one entry per token, rows one after the other. On the host, whatever computes."""

    prompt_tokens: Ints  # [tokens of chunks] their ids; a decode row's is the one it sampled last
    block_tables: NDArray[np.int32]  # [rows, longest table] block ids in logical order
    query_starts: NDArray[np.int32]  # [rows + 1]: row r's tokens are query_starts[r] … query_starts[r + 1]
    context_lengths: NDArray[np.int32]  # [rows] tokens that each row's last one sees, itself included
    last_tokens: Ints  # [sampling rows] where in the batch each sampling row's last token is


def lay_out(step: Step, rows: Rows) -> StepRows:
    """The step's rows with their extents. Raises ProtocolError if no row of it can be computed: it names rows that
    there aren't, or that nobody holds."""
    if step.problem is not None:
        raise ProtocolError(step.problem)
    if step.highest_row >= rows.max_rows:
        raise ProtocolError(f"step {step.number} names row {step.highest_row}; Warmup agreed {rows.max_rows} rows")
    chunk_rows = step.rows[: step.num_chunks]
    if step.num_chunks and not rows.held[chunk_rows].all():
        stranger = chunk_rows[~rows.held[chunk_rows]][0]
        raise ProtocolError(f"step {step.number} has a chunk of row {stranger}, which no request holds")
    starts = rows.computed[step.rows]
    sampling = starts + step.num_tokens >= rows.known[step.rows]
    sampling[step.num_chunks :] = True
    return StepRows(step.rows, step.num_tokens, starts, sampling, step.rows[sampling], step.tables, step.num_chunks)


def find_failures(step: Step, laid_out: StepRows, rows: Rows, pool: Pool) -> dict[int, str]:
    """Rows that cannot be computed, with the reason: failed before, or asked for something impossible."""
    ends = laid_out.starts + laid_out.num_tokens
    known = rows.known[laid_out.rows]
    is_chunk = np.arange(len(ends)) < laid_out.num_chunks
    expected = (rows.prefilling[laid_out.rows] == is_chunk) & (ends <= known)
    enough = step.table_lengths * pool.block_size >= ends
    healthy = rows.held[laid_out.rows] & expected & enough & (ends <= pool.positions)
    if rows.failures:
        healthy &= ~rows.skipped[laid_out.rows]
    if step.highest_block >= pool.num_blocks:
        healthy &= _highest_blocks(laid_out) < pool.num_blocks
    if healthy.all():
        return {}

    def reason(place: int) -> str:
        row, end = int(laid_out.rows[place]), int(ends[place])
        if not rows.held[row]:
            return f"row {row} decodes, but no request holds it"
        if rows.skipped[row]:
            return rows.failures[row]
        if not expected[place]:
            return f"row {row} has {laid_out.starts[place]} of {known[place]} tokens computed; it cannot go on to {end}"
        if not enough[place]:
            blocks, size = step.table_lengths[place], pool.block_size
            return f"row {row} has {blocks} blocks of {size} tokens, too few for {end} tokens"
        if end > pool.positions:
            return f"row {row} reaches {end} tokens, but {pool.positions} are served"
        return f"row {row} names block {_highest_blocks(laid_out)[place]}, but the pool has {pool.num_blocks}"

    return {int(laid_out.rows[place]): reason(place) for place in np.flatnonzero(~healthy).tolist()}


def _highest_blocks(laid_out: StepRows) -> NDArray[np.uint32]:
    """[rows] As they were sent: ids beyond int32 are none of the pool's either."""
    highest: NDArray[np.uint32] = laid_out.tables.view(np.uint32).max(axis=1)
    return highest


def build_batch(laid_out: StepRows, rows: Rows) -> Batch:
    """The flat batch of healthy rows; at least one."""
    if laid_out.num_chunks == 0:
        starts = np.arange(len(laid_out.rows) + 1)
        last_tokens = starts[:-1]
    else:
        starts = np.concatenate(([0], np.cumsum(laid_out.num_tokens)))
        last_tokens = starts[1:][laid_out.sampling] - 1
    return Batch(
        prompt_tokens=_prompt_tokens(laid_out, rows),
        block_tables=laid_out.tables,
        query_starts=starts.astype(np.int32),
        context_lengths=(laid_out.starts + laid_out.num_tokens).astype(np.int32),
        last_tokens=last_tokens,
    )


def _prompt_tokens(laid_out: StepRows, rows: Rows) -> Ints:
    chunks = laid_out.num_chunks
    if chunks == 0:
        return _NO_TOKENS
    extents = zip(laid_out.rows[:chunks].tolist(), laid_out.starts.tolist(), laid_out.num_tokens.tolist(), strict=False)
    parts = [rows.tokens[row][start : start + count] for row, start, count in extents]
    return np.concatenate(parts)


_NO_TOKENS = np.empty(0, np.int64)
