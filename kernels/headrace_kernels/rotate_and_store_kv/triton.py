"""Triton: one program a token and KV head, with the query heads that use it.

A head lies in three pieces: the halves of its rotated pairs, and the rest. Without rotation the halves are the head's.
"""

from typing import TYPE_CHECKING

import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.float8 import as_stored, format_of
from headrace_kernels.gpu.launch import launch
from headrace_kernels.gpu.paging import locate, place_of, store_head

if TYPE_CHECKING:
    from headrace_kernels.rotate_and_store_kv import HeadNorms


def rotate_and_store_kv(
    qkv: Tensor,
    num_heads: int,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    norms: "HeadNorms | None",
    cos_sin: Tensor | None,
    k_scale: float,
    v_scale: float,
) -> Tensor:
    """See `headrace_kernels.rotate_and_store_kv`; the arguments are checked. Queries change in place."""
    num_tokens, num_kv_heads = qkv.shape[0], k_cache.shape[1]
    head_dim = qkv.shape[1] // (num_heads + 2 * num_kv_heads)
    half = (head_dim if cos_sin is None else cos_sin.shape[1]) // 2
    group = num_heads // num_kv_heads
    launch(
        _rotate_and_store_kv_kernel,
        (num_tokens, num_kv_heads),
        qkv,
        as_stored(k_cache),
        as_stored(v_cache),
        block_tables,
        query_starts,
        context_lengths,
        None if norms is None else norms.query,
        None if norms is None else norms.key,
        None if cos_sin is None else cos_sin.contiguous(),
        qkv.stride(0),
        block_tables.stride(0),
        block_tables.shape[0],
        0.0 if norms is None else norms.eps,
        1.0 / k_scale,
        1.0 / v_scale,
        GROUP=group,
        NUM_KV_HEADS=num_kv_heads,
        PADDED_DIM=k_cache.shape[3],
        BLOCK_SIZE=k_cache.shape[2],
        FORMAT=format_of(k_cache),
        HAS_NORMS=norms is not None,
        ROTATES=cos_sin is not None,
        HEAD_DIM=head_dim,
        HALF=half,
        BLOCK_D=triton.next_power_of_2(head_dim),
        BLOCK_GROUP=triton.next_power_of_2(group),
        BLOCK_HALF=triton.next_power_of_2(half),
        BLOCK_REST=triton.next_power_of_2(head_dim - 2 * half) if head_dim > 2 * half else 0,
        num_warps=4 if group * head_dim > 512 else 2,
    )
    return qkv[:, : num_heads * head_dim].view(num_tokens, num_heads, head_dim)


@triton.jit
def _load(ptr, mask):
    return tl.load(ptr, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _normalised(x, weight_ptr, elements, mask, scale, dtype: tl.constexpr):
    """One piece of heads [heads, elements], rounded as `rms_norm` rounds."""
    return (x * scale[:, None] * _load(weight_ptr + elements, mask)).to(dtype).to(tl.float32)


@triton.jit
def _prepared(head_ptr, real, weight_ptr, angle_ptr, eps, PIECES: tl.constexpr):
    """Heads [heads] at their pointers: (first halves, second halves, rest), normalised and rotated, in float32."""
    HEAD_DIM: tl.constexpr = PIECES[0]
    HALF: tl.constexpr = PIECES[1]
    BLOCK_REST: tl.constexpr = PIECES[3]
    HAS_NORMS: tl.constexpr = PIECES[4]
    dtype: tl.constexpr = head_ptr.dtype.element_ty
    pairs = tl.arange(0, PIECES[2])[None, :]
    in_half = pairs < HALF
    mask = real[:, None] & in_half
    first, second = _load(head_ptr[:, None] + pairs, mask), _load(head_ptr[:, None] + HALF + pairs, mask)
    rest = first
    if BLOCK_REST:
        behind = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
        rest = _load(head_ptr[:, None] + behind, real[:, None] & (behind < HEAD_DIM))
    if HAS_NORMS:
        squares = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        if BLOCK_REST:
            squares += tl.sum(rest * rest, 1)
        scale = tl.rsqrt(squares / HEAD_DIM + eps)
        first = _normalised(first, weight_ptr, pairs, in_half, scale, dtype)
        second = _normalised(second, weight_ptr, HALF + pairs, in_half, scale, dtype)
        if BLOCK_REST:
            rest = _normalised(rest, weight_ptr, behind, behind < HEAD_DIM, scale, dtype)
    if PIECES[5]:
        cos, sin = _load(angle_ptr + pairs, in_half), _load(angle_ptr + HALF + pairs, in_half)
        first, second = first * cos - second * sin, second * cos + first * sin
    return first, second, rest


@triton.jit(do_not_specialize=["table_stride", "num_rows"])
def _rotate_and_store_kv_kernel(
    qkv_ptr,
    k_cache_ptr,
    v_cache_ptr,
    tables_ptr,
    starts_ptr,
    contexts_ptr,
    query_norm_ptr,
    key_norm_ptr,
    cos_sin_ptr,
    qkv_stride,
    table_stride,
    num_rows,
    eps,
    k_inverse,
    v_inverse,
    GROUP: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    FORMAT: tl.constexpr,
    HAS_NORMS: tl.constexpr,
    ROTATES: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_GROUP: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
    BLOCK_REST: tl.constexpr,
):
    PIECES: tl.constexpr = (HEAD_DIM, HALF, BLOCK_HALF, BLOCK_REST, HAS_NORMS, ROTATES)
    token, kv_head = tl.program_id(0), tl.program_id(1)
    position, slot = locate(token, tables_ptr, starts_ptr, contexts_ptr, table_stride, num_rows, BLOCK_SIZE)
    if position < 0:
        return
    dtype: tl.constexpr = qkv_ptr.dtype.element_ty
    row_ptr = qkv_ptr + token.to(tl.int64) * qkv_stride
    angle_ptr = cos_sin_ptr
    if ROTATES:
        angle_ptr += position.to(tl.int64) * (2 * HALF)
    pairs = tl.arange(0, BLOCK_HALF)[None, :]

    group = tl.arange(0, BLOCK_GROUP)
    real = group < GROUP
    if HAS_NORMS or ROTATES:
        query_ptr = row_ptr + (kv_head * GROUP + group) * HEAD_DIM
        first, second, rest = _prepared(query_ptr, real, query_norm_ptr, angle_ptr, eps, PIECES)
        mask = real[:, None] & (pairs < HALF)
        tl.store(query_ptr[:, None] + pairs, first.to(dtype), mask=mask)
        tl.store(query_ptr[:, None] + HALF + pairs, second.to(dtype), mask=mask)
        if BLOCK_REST:
            behind = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
            tl.store(query_ptr[:, None] + behind, rest.to(dtype), mask=real[:, None] & (behind < HEAD_DIM))

    one = tl.arange(0, 1)
    key_ptr = row_ptr + (NUM_KV_HEADS * GROUP + kv_head) * HEAD_DIM + one
    first, second, rest = _prepared(key_ptr, one < 1, key_norm_ptr, angle_ptr, eps, PIECES)
    place = place_of(slot, kv_head, NUM_KV_HEADS, BLOCK_SIZE, PADDED_DIM)
    store_head(k_cache_ptr, place, pairs, pairs < HALF, first.to(dtype), k_inverse, FORMAT)
    store_head(k_cache_ptr, place, HALF + pairs, pairs < HALF, second.to(dtype), k_inverse, FORMAT)
    if BLOCK_REST:
        behind = 2 * HALF + tl.arange(0, BLOCK_REST)[None, :]
        store_head(k_cache_ptr, place, behind, behind < HEAD_DIM, rest.to(dtype), k_inverse, FORMAT)

    elements = tl.arange(0, BLOCK_D)
    value_ptr = row_ptr + (NUM_KV_HEADS * (GROUP + 1) + kv_head) * HEAD_DIM + elements
    value = tl.load(value_ptr, mask=elements < HEAD_DIM)
    store_head(v_cache_ptr, place, elements, elements < HEAD_DIM, value, v_inverse, FORMAT)
