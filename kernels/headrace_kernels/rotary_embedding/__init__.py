"""Rotary position embedding."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, ArgumentError, expect, expect_dense, expect_range
from headrace_kernels.rotary_embedding import cpu, reference


def rotary_embedding(
    query: Tensor, key: Tensor, cos_sin: Tensor, positions: Tensor, *, backend: Backend | None = None
) -> None:
    """Rotate queries and keys by their positions, in place.

    query      [num_tokens, num_heads, head_dim]; any stride between tokens
    key        [num_tokens, num_kv_heads, head_dim]; any stride between tokens
    cos_sin    [max_positions, rotary_dim] float32: of each position rotary_dim / 2 cosines, then as many sines
    positions  [num_tokens] int64, in [0, max_positions); on a GPU nobody looks whether they are

    Element i and i + rotary_dim / 2 of a head are a pair (the half-split form of GPT-NeoX and Llama):

        x[i], x[i + half] = x[i] * cos[i] - x[i + half] * sin[i],  x[i + half] * cos[i] + x[i] * sin[i]

    in float32, rounded once. Elements from rotary_dim on stay as they are.

    head_dim 4, rotary_dim 2, an angle of 90 degrees (cos_sin row [0, 1]): [1, 2, 3, 4] becomes [-2, 1, 3, 4].
    """
    num_tokens, _, head_dim = query.shape
    expect(query, "query", dtype=FLOATS)
    expect(key, "key", (num_tokens, None, head_dim), query.dtype, query)
    expect(cos_sin, "cos_sin", (None, None), torch.float32, query)
    expect(positions, "positions", (num_tokens,), torch.int64, query)
    expect_dense(query, "query")
    expect_dense(key, "key")
    max_positions, rotary_dim = cos_sin.shape
    if rotary_dim % 2 or rotary_dim > head_dim:
        raise ArgumentError(f"cos_sin: rotary_dim {rotary_dim} must be even and at most head_dim {head_dim}")
    chosen = choose(backend, query)
    if chosen == "cpu":
        cpu.rotary_embedding(query, key, cos_sin.contiguous(), positions.contiguous())
    elif chosen == "triton":
        from headrace_kernels.rotary_embedding import triton

        triton.rotary_embedding(query, key, cos_sin.contiguous(), positions.contiguous())
    else:
        expect_range(positions, "positions", 0, max_positions)
        reference.rotary_embedding(query, key, cos_sin, positions)
