"""Memory in which the splits of a decode step leave what they found, until it is merged."""

import torch
from torch import Tensor

PARTITION = 256
"""Tokens of the smallest partition of `batch_invariant`."""

SPLITS_PER_ROW = 8
"""Splits that every row may have when the batch is full."""

MOST_SPLITS = 128
"""Splits of one row. With one KV head and one row that many programs read; more would mean more to merge."""


class DecodeWorkspace:
    """Allocated once, so that captured graphs find it where it was. One for all layers: each layer's merge ends before
    the next layer's splits begin."""

    def __init__(self, max_rows: int, max_context: int, num_heads: int, head_dim: int, device: torch.device) -> None:
        """For steps of at most `max_rows` rows, of sequences of at most `max_context` tokens."""
        self.capacity = max(SPLITS_PER_ROW * max_rows, MOST_SPLITS)  # splits of all rows
        most_partitions = max(self.capacity // max(max_rows, 1), 1)
        # Of the server, not of a batch: a sequence's bits depend on it.
        self.partition = PARTITION
        while self.partition * most_partitions < max_context:
            self.partition *= 2

        def floats(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float32, device=device)

        self.sums = floats(self.capacity, num_heads, head_dim)  # of weighted values
        self.maxima = floats(self.capacity, num_heads)  # of scores, in units of log 2
        self.weights = floats(self.capacity, num_heads)  # their sum, relative to the maximum

    @classmethod
    def for_call(cls, query: Tensor, block_tables: Tensor, block_size: int) -> "DecodeWorkspace":
        """One that does for a single call."""
        num_rows, max_blocks = block_tables.shape
        return cls(num_rows, max_blocks * block_size, query.shape[1], query.shape[2], query.device)

    def room(self, num_rows: int) -> int:
        """The most splits that every row may have in a step of `num_rows` rows."""
        return max(1, min(self.capacity // max(num_rows, 1), MOST_SPLITS))
