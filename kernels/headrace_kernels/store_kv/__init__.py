"""Writing keys and values into the paged cache."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import dense, expect
from headrace_kernels.float8 import FLOAT8
from headrace_kernels.kv_cache import has_panels, padded_head_dim
from headrace_kernels.store_kv import cpu, reference


def store_kv(
    key: Tensor,
    value: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    panels: bool | None = None,
    backend: Backend | None = None,
) -> None:
    """Write this step's keys and values into the paged cache, in place.

    key, value        [num_tokens, num_kv_heads, head_dim]; any stride between tokens
    k_cache, v_cache  of `kv_cache_shape` in key's dtype or in one of `FLOAT8`, contiguous
    block_tables, query_starts, context_lengths  the batch, as `paged_attention` describes it
    k_scale, v_scale  for 8-bit caches: `float8.encode(key, k_scale, …)` is stored
    panels            the order of the caches (`kv_cache`); None: the one that the backend works with

    Token i of row r goes to position p = context_lengths[r] - num_queries[r] + i of the row: block
    block_tables[r, p // block_size], offset p % block_size. No two tokens may have the same block and offset.

    Position 37 of a sequence with blocks [4, 9, 7] of 16 tokens: block 7, offset 5. Only copies, so all backends agree
    bit for bit about the positions of a row; the C++ one also zeros values behind a row's last position, to the end
    of its line or tile of 32, which its attention relies on. Triton's checks no contents, and skips what a captured
    graph is padded with: tokens that no row has, and those of rows without context.
    """
    _, num_kv_heads, head_dim = key.shape
    num_rows = block_tables.shape[0]
    expect(value, "value", key.shape, key.dtype, key)
    expect(k_cache, "k_cache", (None, num_kv_heads, None, padded_head_dim(head_dim)), (key.dtype, *FLOAT8), key)
    expect(v_cache, "v_cache", k_cache.shape, k_cache.dtype, key)
    expect(block_tables, "block_tables", (None, None), torch.int32, key)
    expect(query_starts, "query_starts", (num_rows + 1,), torch.int32, key)
    expect(context_lengths, "context_lengths", (num_rows,), torch.int32, key)
    contiguous = k_cache.is_contiguous() and v_cache.is_contiguous()
    in_cpp = contiguous and head_dim <= cpu.MOST_HEAD_DIM and k_cache.dtype == key.dtype and panels is not False
    able = choose(backend, key, cpu=in_cpp, triton=contiguous and panels is not True)
    batch = block_tables.contiguous(), query_starts.contiguous(), context_lengths.contiguous()
    key, value = dense(key), dense(value)
    if able == "cpu":
        cpu.store_kv(key, value, k_cache, v_cache, *batch)
    elif able == "triton":
        from headrace_kernels.store_kv import triton

        triton.store_kv(key, value, k_cache, v_cache, *batch, k_scale, v_scale)
    else:
        reference.store_kv(key, value, k_cache, v_cache, *batch, k_scale, v_scale, has_panels(panels, able, k_cache))
