"""Whether a batch's block tables, query starts and context lengths fit together."""

from itertools import pairwise

import torch
from torch import Tensor

from headrace_kernels.checks import ArgumentError, out_of_range


def check_batch(
    num_tokens: int,
    num_blocks: int,
    block_size: int,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    sliding_window: int | None,
) -> None:
    """Raise `ArgumentError` for the first row that can't be computed. Reads the data; C++ has a check of its own."""
    starts = query_starts.tolist()
    if starts[0] != 0 or starts[-1] != num_tokens or any(b < a for a, b in pairwise(starts)):
        raise ArgumentError(f"query_starts: expected rising from 0 to {num_tokens}, got {starts}")
    most = block_tables.shape[1] * block_size
    for row, (context, table) in enumerate(zip(context_lengths.tolist(), block_tables.tolist(), strict=True)):
        queries = starts[row + 1] - starts[row]
        if queries == 0:
            continue
        if not queries <= context <= most:
            raise ArgumentError(out_of_range("context_lengths", f"{row}", context, queries, most + 1))
        first_key = 0 if sliding_window is None else max(0, context - queries - sliding_window + 1)
        for i in range(first_key // block_size, -(-context // block_size)):
            if not 0 <= table[i] < num_blocks:
                raise ArgumentError(out_of_range("block_tables", f"{row}, {i}", table[i], 0, num_blocks))


def places(query_starts: Tensor, context_lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Of each token of a batch that fits together: its row and its position in the sequence, int64."""
    counts = (query_starts[1:] - query_starts[:-1]).long()
    rows = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
    behind = (query_starts[1:].long() - context_lengths)[rows]
    return rows, torch.arange(len(rows), device=counts.device) - behind
