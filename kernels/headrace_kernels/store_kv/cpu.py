"""Calls the C++ `store_kv`."""

from torch import Tensor

from headrace_kernels.backends import DTYPES
from headrace_kernels.native import INT, INT32, POINTER, Kernel, num_threads
from headrace_kernels.paged_attention.batch import check_batch

MOST_HEAD_DIM = 512
"""Elements of a head that the C++ function can do."""

_store_kv = Kernel(
    "store_kv",
    *(POINTER, INT, POINTER, INT),  # key and value with their strides
    *(POINTER, POINTER, INT32),  # caches, the dtype of all tensors
    *(POINTER, POINTER, POINTER),  # block tables, query starts, context lengths
    *(INT, INT, INT, INT, INT, INT, INT, INT32),
)


def store_kv(
    key: Tensor,
    value: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
) -> None:
    """See `headrace_kernels.store_kv`; shapes and dtypes are checked, all but key and value contiguous."""
    num_tokens, num_kv_heads, head_dim = key.shape
    num_blocks, _, block_size, _ = k_cache.shape
    if not _store_kv(
        key.data_ptr(),
        key.stride(0),
        value.data_ptr(),
        value.stride(0),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        DTYPES[key.dtype],
        block_tables.data_ptr(),
        query_starts.data_ptr(),
        context_lengths.data_ptr(),
        num_tokens,
        block_tables.shape[0],
        block_tables.shape[1],
        num_blocks,
        num_kv_heads,
        head_dim,
        block_size,
        num_threads(),
    ):
        check_batch(num_tokens, num_blocks, block_size, block_tables, query_starts, context_lengths, 1)
