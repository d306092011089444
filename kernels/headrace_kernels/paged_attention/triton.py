"""Triton: one launch for chunks and decode rows together.

A program takes the query heads of one KV head, of as many consecutive tokens of one row as its tile has room for.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.batch_rows import row_of
from headrace_kernels.gpu.chip import capability
from headrace_kernels.gpu.float8 import STEP, as_stored, format_of
from headrace_kernels.gpu.launch import launch
from headrace_kernels.paged_attention.scores import Scores
from headrace_kernels.paged_attention.tiles import Tiles, invariant_tiles, mixed_tiles, next_power_of_two
from headrace_kernels.paged_attention.triton_tiles import (
    attend,
    attention_of,
    first_state,
    for_products,
    load_queries,
    merge,
)


def paged_attention(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    scores: Scores,
    partition: int,
) -> Tensor:
    """See `headrace_kernels.paged_attention`; shapes and dtypes are checked. `partition`: its tokens; 0: none."""
    num_tokens, num_heads, head_dim = query.shape
    num_rows, num_kv_heads = block_tables.shape[0], k_cache.shape[1]
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    group = num_heads // num_kv_heads
    sizes = query.element_size(), k_cache.element_size()
    if partition:
        tiles = invariant_tiles(head_dim, group, *sizes)
    else:
        tiles = mixed_tiles(head_dim, group, num_tokens / max(num_rows, 1), *sizes, capability())
    queries = tiles.rows // group
    launch(
        _attention_kernel,
        (num_tokens // queries + num_rows, num_kv_heads),
        out,
        query,
        as_stored(k_cache),
        as_stored(v_cache),
        block_tables,
        query_starts,
        context_lengths,
        scores.sinks,
        query.stride(0),
        block_tables.stride(0),
        num_rows,
        partition,
        *factors(scores, k_cache),
        BLOCK_Q=queries,
        HAS_PARTITIONS=partition > 0,
        **compile_time(query, k_cache, scores, tiles),
    )
    return out


def factors(scores: Scores, k_cache: Tensor) -> tuple[float, float, float, int]:
    """exponent_factor, cap_factor, v_factor and window of `attend`."""
    step = STEP[format_of(k_cache)]
    scale, log2e = scores.scale * scores.k_scale * step, math.log2(math.e)
    cap = scores.softcap
    exponent, half = (scale * log2e, 0.0) if cap is None else (cap * log2e, 2 * log2e * scale / cap)
    return exponent, half, scores.v_scale * step, scores.sliding_window or 0


def compile_time(query: Tensor, k_cache: Tensor, scores: Scores, tiles: Tiles) -> dict[str, Any]:
    """What the attention kernels are compiled for."""
    _, num_heads, head_dim = query.shape
    _, num_kv_heads, block_size, padded_dim = k_cache.shape
    return {
        "GROUP": num_heads // num_kv_heads,
        "SHAPE": (
            num_kv_heads,
            head_dim,
            padded_dim,
            max(16, next_power_of_two(head_dim)),
            block_size,
            tiles.keys,
            format_of(k_cache),
            scores.sliding_window is not None,
            scores.softcap is not None,
        ),
        "BLOCK_M": tiles.rows,
        "HAS_SINKS": scores.sinks is not None,
        "num_warps": tiles.warps,
        "num_stages": tiles.stages,
    }


@triton.jit(do_not_specialize=["table_stride", "num_rows", "partition", "window"])
def _attention_kernel(
    out_ptr,
    query_ptr,
    k_ptr,
    v_ptr,
    tables_ptr,
    starts_ptr,
    contexts_ptr,
    sinks_ptr,
    query_stride,
    table_stride,
    num_rows,
    partition,  # its tokens: of the server, so they compile nothing anew
    exponent_factor,
    cap_factor,
    v_factor,
    window,
    GROUP: tl.constexpr,
    SHAPE: tl.constexpr,  # of `attend`
    BLOCK_Q: tl.constexpr,
    BLOCK_M: tl.constexpr,
    HAS_PARTITIONS: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    NUM_KV_HEADS: tl.constexpr = SHAPE[0]
    HEAD_DIM: tl.constexpr = SHAPE[1]
    BLOCK_D: tl.constexpr = SHAPE[3]
    BLOCK_N: tl.constexpr = SHAPE[5]
    FORMAT: tl.constexpr = SHAPE[6]
    HAS_WINDOW: tl.constexpr = SHAPE[7]
    # The last tile of a prompt sees the most keys: it begins first.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    row = row_of(starts_ptr, num_rows, tile, BLOCK_Q)
    if row == num_rows:
        return
    start = tl.load(starts_ptr + row)
    num_queries = tl.load(starts_ptr + row + 1) - start
    first = (tile - start // BLOCK_Q - row) * BLOCK_Q
    context = tl.load(contexts_ptr + row)
    if (first >= num_queries) | (context <= 0):
        return

    index = tl.arange(0, BLOCK_M)
    queries, heads = first + index // GROUP, kv_head * GROUP + index % GROUP
    end = tl.minimum(first + BLOCK_Q, num_queries)
    real = queries < end
    before = context - num_queries
    first_position, last_position = before + first, before + end - 1
    positions = tl.minimum(before + queries, last_position)
    query = load_queries(query_ptr, start + queries, heads, real, query_stride, HEAD_DIM, BLOCK_D)
    query = for_products(query, FORMAT)
    sequence = (k_ptr, v_ptr, tables_ptr + row.to(tl.int64) * table_stride, context, kv_head)
    factors = (exponent_factor, cap_factor, window)

    top, weight, total = first_state(sinks_ptr, heads, real, HAS_SINKS, BLOCK_M, BLOCK_D)
    if HAS_PARTITIONS:
        tiles = partition // BLOCK_N
        begin = 0
        if HAS_WINDOW:
            begin = tl.maximum(first_position - window + 1, 0) // partition
        for part in range(begin, last_position // partition + 1):
            part_top, part_weight, part_total = first_state(sinks_ptr, heads, real, False, BLOCK_M, BLOCK_D)
            part_top, part_weight, part_total = attend(
                part_top,
                part_weight,
                part_total,
                query,
                positions,
                first_position,
                last_position,
                part * tiles,
                part * tiles + tiles,
                sequence,
                factors,
                SHAPE,
            )
            top, weight, total = merge(top, weight, total, part_top, part_weight, part_total)
    else:
        ALL: tl.constexpr = 2**30
        top, weight, total = attend(
            top, weight, total, query, positions, first_position, last_position, 0, ALL, sequence, factors, SHAPE
        )

    elements = tl.arange(0, BLOCK_D)
    offsets = ((start + queries).to(tl.int64) * (NUM_KV_HEADS * GROUP) + heads) * HEAD_DIM
    out = attention_of(weight, total, v_factor).to(out_ptr.dtype.element_ty)
    mask = real[:, None] & (elements < HEAD_DIM)[None, :]
    tl.store(out_ptr + offsets[:, None] + elements[None, :], out, mask=mask)
