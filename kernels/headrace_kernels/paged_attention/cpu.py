"""Calls the C++ `paged_attention`."""

import torch
from torch import Tensor

from headrace_kernels.backends import DTYPES
from headrace_kernels.native import FLOAT, INT, INT32, POINTER, Kernel, num_threads
from headrace_kernels.paged_attention.batch import check_batch

_paged_attention = Kernel(
    "paged_attention",
    *(POINTER, INT),  # query and its stride
    *(POINTER, POINTER, INT32, POINTER),  # caches, the dtype of all tensors, the result
    *(POINTER, POINTER, POINTER),  # block tables, query starts, context lengths
    *(INT, INT, INT, INT, INT, INT, INT, INT, INT, FLOAT, INT32),
)

NO_WINDOW = 1 << 40
"""A sliding window wider than any context."""


def paged_attention(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    scale: float,
    sliding_window: int | None,
) -> Tensor:
    """See `headrace_kernels.paged_attention`; shapes and dtypes are checked, all but query contiguous."""
    num_tokens, num_heads, head_dim = query.shape
    num_blocks, num_kv_heads, block_size, _ = k_cache.shape
    out = torch.empty(query.shape, dtype=query.dtype)
    if not _paged_attention(
        query.data_ptr(),
        query.stride(0),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        DTYPES[query.dtype],
        out.data_ptr(),
        block_tables.data_ptr(),
        query_starts.data_ptr(),
        context_lengths.data_ptr(),
        num_tokens,
        block_tables.shape[0],
        block_tables.shape[1],
        num_blocks,
        num_heads,
        num_kv_heads,
        head_dim,
        block_size,
        sliding_window or NO_WINDOW,
        scale,
        num_threads(),
    ):
        check_batch(num_tokens, num_blocks, block_size, block_tables, query_starts, context_lengths, sliding_window)
    return out
