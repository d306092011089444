"""The vocabulary of a step inside the shard: what the router asks, what goes back. proto/shard.proto is its wire form.

Plain values: numpy arrays, no protobuf and no torch.
"""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from headrace_server.sampling.parameters import SamplingParameters

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


NO_PAIRS = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True)
class NewRow:
    """A request takes a row: all that the shard must know of it."""

    row: int
    epoch: int  # one holding of the row
    token_ids: Ints  # [known] prompt, then generated; also those that are computed already
    num_generated: int  # the last so many of token_ids
    num_computed: int  # the first so many have their KV in the row's blocks
    sampling: SamplingParameters


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass. Its rows are the chunks', then the decodes'; whatever has [rows] follows that order.

    Made when its message arrives, while the step before it may still run: what can be laid out without knowing how far
    the rows are, is.
    """

    number: int
    new_rows: tuple[NewRow, ...]
    rows: Ints  # [rows]
    num_tokens: Ints  # [rows] of each chunk; 1 for a row that decodes
    num_chunks: int
    tables: NDArray[np.int32]  # [rows, longest table] block ids in logical order, 0 past a table's end
    table_lengths: Ints  # [rows] blocks of each table
    highest_row: int
    highest_block: int
    # Pairs of what is read and what is written before anything is computed; swaps come before copies:
    copies: Ints  # [n, 2] block, block
    swaps_out: Ints  # [n, 2] block, host block
    swaps_back: Ints  # [n, 2] host block, block
    problem: str | None  # why it can't be computed, whatever its rows are

    @classmethod
    def of(
        cls,
        number: int,
        new_rows: tuple[NewRow, ...],
        chunk_rows: Ints,
        chunk_tokens: Ints,
        decode_rows: Ints,
        table_lengths: Ints,
        table_blocks: Ints,
        copies: Ints = NO_PAIRS,
        swaps_out: Ints = NO_PAIRS,
        swaps_back: Ints = NO_PAIRS,
    ) -> Self:
        """table_blocks [sum of table_lengths]: the tables one after the other. At least one row."""
        rows = np.concatenate((chunk_rows, decode_rows))
        width = max(int(table_lengths.max()), 1)
        tables = np.zeros((len(rows), width), np.int32)
        tables[np.arange(width) < table_lengths[:, None]] = table_blocks
        return cls(
            number,
            new_rows,
            rows,
            np.concatenate((chunk_tokens, np.ones_like(decode_rows))),
            len(chunk_rows),
            tables,
            table_lengths,
            int(rows.max()),
            int(table_blocks.max()) if len(table_blocks) else 0,
            copies,
            swaps_out,
            swaps_back,
            _problem(number, rows, chunk_tokens),
        )

    @property
    def total_tokens(self) -> int:
        """Of its forward pass."""
        return int(self.num_tokens.sum())


def _problem(number: int, rows: Ints, chunk_tokens: Ints) -> str | None:
    if len(np.unique(rows)) < len(rows):
        return f"step {number} names a row twice"
    if len(chunk_tokens) and int(chunk_tokens.min()) < 1:
        return f"step {number} has a chunk of no tokens"
    return None


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows that ended, were cancelled or were preempted. A row that is held in another epoch stays."""

    rows: Ints  # [n]
    epochs: Ints  # [n]


@dataclass(slots=True)
class StepResult:
    """What one step brought back. With `error` set, nothing was sampled and the arrays are empty."""

    number: int
    token_ids: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # [samples] 0 for failed rows
    logprobs: Floats = field(
        default_factory=lambda: np.empty(0, np.float32)
    )  # [samples that asked] NaN for failed rows
    top_ids: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # [sum of top_n]
    top_logprobs: Floats = field(default_factory=lambda: np.empty(0, np.float32))  # [sum of top_n]
    prompt_logprobs: Floats = field(default_factory=lambda: np.empty(0, np.float32))  # [tokens of chunks that asked]
    row_errors: dict[int, str] = field(default_factory=dict)  # row → sentence
    error: str | None = None
    out_of_memory: bool = False  # that is the error: fewer tokens may fit
    forward_us: int = 0  # embedding to logits
    sampling_us: int = 0  # logits to token ids on the host
