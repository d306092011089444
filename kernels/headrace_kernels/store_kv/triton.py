"""Triton: one program a token and KV head."""

import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.float8 import as_stored, format_of
from headrace_kernels.gpu.launch import launch
from headrace_kernels.gpu.paging import locate, place_of, store_head


def store_kv(
    key: Tensor,
    value: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    k_scale: float,
    v_scale: float,
) -> None:
    """See `headrace_kernels.store_kv`; shapes and dtypes are checked."""
    num_tokens, num_kv_heads, head_dim = key.shape
    launch(
        _store_kv_kernel,
        (num_tokens, num_kv_heads),
        key,
        value,
        as_stored(k_cache),
        as_stored(v_cache),
        block_tables,
        query_starts,
        context_lengths,
        key.stride(0),
        value.stride(0),
        block_tables.stride(0),
        block_tables.shape[0],
        1.0 / k_scale,
        1.0 / v_scale,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        PADDED_DIM=k_cache.shape[3],
        BLOCK_D=triton.next_power_of_2(head_dim),
        BLOCK_SIZE=k_cache.shape[2],
        FORMAT=format_of(k_cache),
        num_warps=1,
    )


@triton.jit(do_not_specialize=["table_stride", "num_rows"])
def _store_kv_kernel(
    key_ptr,
    value_ptr,
    k_cache_ptr,
    v_cache_ptr,
    tables_ptr,
    starts_ptr,
    contexts_ptr,
    key_stride,
    value_stride,
    table_stride,
    num_rows,
    k_inverse,
    v_inverse,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    FORMAT: tl.constexpr,
):
    token, head = tl.program_id(0), tl.program_id(1)
    position, slot = locate(token, tables_ptr, starts_ptr, contexts_ptr, table_stride, num_rows, BLOCK_SIZE)
    if position < 0:
        return
    elements = tl.arange(0, BLOCK_D)
    mask = elements < HEAD_DIM
    key = tl.load(key_ptr + token.to(tl.int64) * key_stride + head * HEAD_DIM + elements, mask=mask)
    value = tl.load(value_ptr + token.to(tl.int64) * value_stride + head * HEAD_DIM + elements, mask=mask)
    place = place_of(slot, head, NUM_KV_HEADS, BLOCK_SIZE, PADDED_DIM)
    store_head(k_cache_ptr, place, elements, mask, key, k_inverse, FORMAT)
    store_head(v_cache_ptr, place, elements, mask, value, v_inverse, FORMAT)
