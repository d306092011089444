"""The Triton kernel of `rotary_embedding`: one program for a few heads of a token."""

import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.launch import launch

HEADS = 4
"""Heads of a program: with 64 pairs each it has 256 pairs, enough for two warps."""


def rotary_embedding(query: Tensor, key: Tensor, cos_sin: Tensor, positions: Tensor) -> None:
    """See `headrace_kernels.rotary_embedding`; all arguments checked but the values of positions."""
    tokens, num_heads, head_dim = query.shape
    num_kv_heads, rotary_dim = key.shape[1], cos_sin.shape[1]
    query_programs = triton.cdiv(num_heads, HEADS)
    launch(
        _rotary_embedding_kernel,
        (tokens, query_programs + triton.cdiv(num_kv_heads, HEADS)),
        query,
        key,
        cos_sin,
        positions,
        query.stride(0),
        key.stride(0),
        NUM_HEADS=num_heads,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        HALF=rotary_dim // 2,
        QUERY_PROGRAMS=query_programs,
        BLOCK_HEADS=HEADS,
        BLOCK_HALF=triton.next_power_of_2(max(rotary_dim // 2, 1)),
        num_warps=2,
    )


@triton.jit
def _rotary_embedding_kernel(
    query_ptr,
    key_ptr,
    cos_sin_ptr,
    positions_ptr,
    query_stride,
    key_stride,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HALF: tl.constexpr,
    QUERY_PROGRAMS: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    program = tl.program_id(1)
    pairs = tl.arange(0, BLOCK_HALF)[None, :]
    angle_ptr = cos_sin_ptr + tl.load(positions_ptr + token) * (2 * HALF) + pairs
    cos = tl.load(angle_ptr, mask=pairs < HALF, other=0.0)
    sin = tl.load(angle_ptr + HALF, mask=pairs < HALF, other=0.0)
    heads = tl.arange(0, BLOCK_HEADS)[:, None]
    if program < QUERY_PROGRAMS:
        heads += program * BLOCK_HEADS
        inside = (heads < NUM_HEADS) & (pairs < HALF)
        _rotate(query_ptr + token * query_stride + heads * HEAD_DIM + pairs, inside, cos, sin, HALF)
    else:
        heads += (program - QUERY_PROGRAMS) * BLOCK_HEADS
        inside = (heads < NUM_KV_HEADS) & (pairs < HALF)
        _rotate(key_ptr + token * key_stride + heads * HEAD_DIM + pairs, inside, cos, sin, HALF)


@triton.jit
def _rotate(first_ptr, inside, cos, sin, HALF: tl.constexpr):
    """Turn the pairs (first_ptr, first_ptr + HALF) in place."""
    first = tl.load(first_ptr, mask=inside, other=0.0)
    second = tl.load(first_ptr + HALF, mask=inside, other=0.0)
    a, b = first.to(tl.float32), second.to(tl.float32)
    tl.store(first_ptr, (a * cos - b * sin).to(first.dtype), mask=inside)
    tl.store(first_ptr + HALF, (b * cos + a * sin).to(first.dtype), mask=inside)
