"""The vocabulary of a step inside the shard: what the router asks, what goes back. proto/shard.proto is its wire form.

Plain values: numpy arrays, no protobuf and no torch.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace_server.sampling.parameters import SamplingParameters

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def _no_pairs() -> Ints:
    return np.empty((0, 2), np.int64)


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
    """One forward pass. Its rows are the chunks', then the decodes'; tables follow that order."""

    number: int
    new_rows: tuple[NewRow, ...]
    chunk_rows: Ints  # [chunks]
    chunk_tokens: Ints  # [chunks] at least 1 each
    decode_rows: Ints  # [decodes]
    table_lengths: Ints  # [rows] blocks of each table
    table_blocks: Ints  # [sum of table_lengths] block ids in logical order
    # Pairs of what is read and what is written before anything is computed; swaps come before copies:
    copies: Ints = field(default_factory=_no_pairs)  # [n, 2] block, block
    swaps_out: Ints = field(default_factory=_no_pairs)  # [n, 2] block, host block
    swaps_back: Ints = field(default_factory=_no_pairs)  # [n, 2] host block, block


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
