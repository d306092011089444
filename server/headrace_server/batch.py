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
    sampling: np.ndarray  # [rows] bool: it reaches the end of its known tokens, so it samples
    tables: Ints  # [rows, longest table] block ids, 0 past a table's end
    table_lengths: Ints  # [rows]
    num_chunks: int

    @property
    def decodes(self) -> Ints:
        """The rows that decode."""
        return self.rows[self.num_chunks :]

    def take(self, healthy: np.ndarray) -> "StepRows":
        """Only the rows where `healthy`."""
        return StepRows(
            self.rows[healthy],
            self.num_tokens[healthy],
            self.starts[healthy],
            self.sampling[healthy],
            self.tables[healthy],
            self.table_lengths[healthy],
            int(healthy[: self.num_chunks].sum()),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """What a model reads: one entry per token, rows one after the other. On the host, whatever computes."""

    prompt_tokens: Ints  # [tokens of chunks] their ids; a decode row's is the one it sampled last
    block_tables: NDArray[np.int32]  # [rows, longest table] block ids in logical order
    query_starts: NDArray[np.int32]  # [rows + 1]: row r's tokens are query_starts[r] … query_starts[r + 1]
    context_lengths: NDArray[np.int32]  # [rows] tokens that each row's last one sees, itself included
    last_tokens: Ints  # [sampling rows] where in the batch each sampling row's last token is


def lay_out(step: Step, rows: Rows) -> StepRows:
    """The step's rows with their extents. Raises ProtocolError if it names rows that nobody holds."""
    step_rows = np.concatenate((step.chunk_rows, step.decode_rows))
    _check_rows(step, step_rows, rows)
    num_tokens = np.concatenate((step.chunk_tokens, np.ones_like(step.decode_rows)))
    starts = rows.computed[step_rows]
    sampling = starts + num_tokens >= rows.known[step_rows]
    sampling[len(step.chunk_rows) :] = True
    tables = np.zeros((len(step_rows), max(int(step.table_lengths.max()), 1)), np.int64)
    tables[np.arange(tables.shape[1]) < step.table_lengths[:, None]] = step.table_blocks
    return StepRows(step_rows, num_tokens, starts, sampling, tables, step.table_lengths, len(step.chunk_rows))


def find_failures(laid_out: StepRows, rows: Rows, block_size: int, num_blocks: int, positions: int) -> dict[int, str]:
    """Rows that cannot be computed, with the reason: failed before, or asked for something impossible.

    positions: the longest sequence that the model was prepared for.
    """
    ends = laid_out.starts + laid_out.num_tokens
    known = rows.known[laid_out.rows]
    is_chunk = np.arange(len(ends)) < laid_out.num_chunks
    expected = (rows.prefilling[laid_out.rows] == is_chunk) & (ends <= known)
    enough = laid_out.table_lengths * block_size >= ends
    inside = laid_out.tables.max(axis=1) < num_blocks
    healthy = rows.held[laid_out.rows] & ~rows.failed[laid_out.rows] & expected & enough & inside & (ends <= positions)

    def reason(place: int) -> str:
        row, end = int(laid_out.rows[place]), int(ends[place])
        if not rows.held[row]:
            return f"row {row} decodes, but no request holds it"
        if rows.failed[row]:
            return rows.failures[row]
        if not expected[place]:
            return f"row {row} has {laid_out.starts[place]} of {known[place]} tokens computed; it cannot go on to {end}"
        if not enough[place]:
            return (
                f"row {row} has {laid_out.table_lengths[place]} blocks of {block_size} tokens, too few for {end} tokens"
            )
        if not inside[place]:
            return f"row {row} names block {laid_out.tables[place].max()}, but the pool has {num_blocks}"
        return f"row {row} reaches {end} tokens, but {positions} are served"

    return {int(laid_out.rows[place]): reason(place) for place in np.flatnonzero(~healthy).tolist()}


def build_batch(laid_out: StepRows, rows: Rows) -> Batch:
    """The flat batch of healthy rows; at least one."""
    ends = np.cumsum(laid_out.num_tokens)
    return Batch(
        prompt_tokens=_prompt_tokens(laid_out, rows),
        block_tables=laid_out.tables.astype(np.int32),
        query_starts=np.concatenate(([0], ends)).astype(np.int32),
        context_lengths=(laid_out.starts + laid_out.num_tokens).astype(np.int32),
        last_tokens=ends[laid_out.sampling] - 1,
    )


def _prompt_tokens(laid_out: StepRows, rows: Rows) -> Ints:
    chunks = laid_out.num_chunks
    extents = zip(laid_out.rows[:chunks].tolist(), laid_out.starts.tolist(), laid_out.num_tokens.tolist(), strict=False)
    parts = [rows.tokens[row][start : start + count] for row, start, count in extents]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _check_rows(step: Step, step_rows: Ints, rows: Rows) -> None:
    if int(step_rows.max()) >= rows.max_rows:
        raise ProtocolError(f"step {step.number} names row {step_rows.max()}; Warmup agreed {rows.max_rows} rows")
    if len(np.unique(step_rows)) < len(step_rows):
        raise ProtocolError(f"step {step.number} names a row twice")
    if len(step.chunk_tokens) and int(step.chunk_tokens.min()) < 1:
        raise ProtocolError(f"step {step.number} has a chunk of no tokens")
    if not rows.held[step.chunk_rows].all():
        stranger = step.chunk_rows[~rows.held[step.chunk_rows]][0]
        raise ProtocolError(f"step {step.number} has a chunk of row {stranger}, which no request holds")
