"""What lies between the QKV projection and attention: heads normalised and rotated, keys and values stored."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, ArgumentError, expect, expect_dense
from headrace_kernels.float8 import FLOAT8
from headrace_kernels.kv_cache import padded_head_dim
from headrace_kernels.rotate_and_store_kv import reference
from headrace_kernels.store_kv.cpu import MOST_HEAD_DIM


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Root-mean-square normalisation of each query head and each key head."""

    query: Tensor  # [head_dim]
    key: Tensor  # [head_dim]
    eps: float


def rotate_and_store_kv(
    qkv: Tensor,
    num_heads: int,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    *,
    norms: HeadNorms | None = None,
    cos_sin: Tensor | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    panels: bool | None = None,
    backend: Backend | None = None,
) -> Tensor:
    """Make queries ready for `paged_attention`, and put keys and values where it reads them.

    qkv               [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]: a token's query heads, key heads, value
                      heads; any stride between tokens. It is used up: its memory may hold the result
    k_cache, v_cache  as `store_kv` has them; num_kv_heads and head_dim follow from them and qkv
    block_tables, query_starts, context_lengths  the batch, as `paged_attention` describes it
    norms             None: heads stay as they are
    cos_sin           [max_positions, rotary_dim] float32 of `rotary_embedding`; None: they are not rotated
    k_scale, v_scale, panels  as `store_kv` has them
    returns           [num_tokens, num_heads, head_dim], contiguous but for the first axis

    The same as these one after the other, each of which rounds to qkv's dtype:

        query, key = rms_norm(query, norms.query, norms.eps), rms_norm(key, norms.key, norms.eps)
        rotary_embedding(query, key, cos_sin, positions)
        store_kv(key, value, k_cache, v_cache, …)

    Token i of row r is at position
    context_lengths[r] - num_queries[r] + i, which must be below max_positions: on a GPU nobody looks.

    With 2 query heads, 1 KV head and head_dim 64 a row of qkv has 256 elements: queries in 0 to 127, the key in 128 to
    191, the value behind.
    """
    width = qkv.shape[1]
    num_rows, num_kv_heads = block_tables.shape[0], k_cache.shape[1]
    head_dim, left = divmod(width, num_heads + 2 * num_kv_heads)
    if left:
        raise ArgumentError(f"qkv: {width} columns are not {num_heads} + 2 * {num_kv_heads} heads")
    expect(qkv, "qkv", dtype=FLOATS)
    expect_dense(qkv, "qkv")
    expect(k_cache, "k_cache", (None, None, None, padded_head_dim(head_dim)), (qkv.dtype, *FLOAT8), qkv)
    expect(v_cache, "v_cache", k_cache.shape, k_cache.dtype, qkv)
    expect(block_tables, "block_tables", (None, None), torch.int32, qkv)
    expect(query_starts, "query_starts", (num_rows + 1,), torch.int32, qkv)
    expect(context_lengths, "context_lengths", (num_rows,), torch.int32, qkv)
    if norms is not None:
        expect(norms.query, "norms.query", (head_dim,), qkv.dtype, qkv)
        expect(norms.key, "norms.key", (head_dim,), qkv.dtype, qkv)
    if cos_sin is not None:
        expect(cos_sin, "cos_sin", (None, None), torch.float32, qkv)
        if cos_sin.shape[1] % 2 or cos_sin.shape[1] > head_dim:
            raise ArgumentError(f"cos_sin: rotary_dim {cos_sin.shape[1]} must be even and at most head_dim {head_dim}")
    contiguous = k_cache.is_contiguous() and v_cache.is_contiguous()
    in_cpp = contiguous and k_cache.dtype == qkv.dtype and panels is not False and head_dim <= MOST_HEAD_DIM
    able = choose(backend, qkv, cpu=in_cpp, triton=contiguous and panels is not True and head_dim % 2 == 0)
    batch = block_tables.contiguous(), query_starts.contiguous(), context_lengths.contiguous()
    if able == "triton":
        from headrace_kernels.rotate_and_store_kv import triton

        return triton.rotate_and_store_kv(qkv, num_heads, k_cache, v_cache, *batch, norms, cos_sin, k_scale, v_scale)
    return reference.rotate_and_store_kv(
        qkv, num_heads, k_cache, v_cache, *batch, norms, cos_sin, k_scale, v_scale, panels, able
    )
