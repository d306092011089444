"""Triton: steps of decode rows alone. A sequence's keys are split over programs, then what they found is merged.

Without partitions a split is as many keys as all programs would read if everything were shared out evenly, computed on
the device from all context lengths. With them it is one partition, whatever else is in the batch.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.checks import ArgumentError
from headrace_kernels.gpu.chip import capability, multiprocessors
from headrace_kernels.gpu.float8 import as_stored
from headrace_kernels.gpu.launch import launch
from headrace_kernels.paged_attention.scores import Scores
from headrace_kernels.paged_attention.tiles import decode_tiles, invariant_tiles
from headrace_kernels.paged_attention.triton import compile_time, factors
from headrace_kernels.paged_attention.triton_tiles import (
    attend,
    attention_of,
    first_state,
    for_products,
    load_queries,
    merge,
)
from headrace_kernels.paged_attention.workspace import DecodeWorkspace

LEAST_SPLIT = tl.constexpr(128)
"""Tokens of the smallest split: below, a program's start costs more than its keys."""

PROGRAMS_PER_MULTIPROCESSOR = 4
"""So many programs read at once: one's products hide in the others' loads, and the last ones to end are short."""


def paged_attention(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    scores: Scores,
    workspace: DecodeWorkspace,
    batch_invariant: bool,
) -> Tensor:
    """See `headrace_kernels.paged_attention`; shapes and dtypes are checked, and no row has more than one query."""
    _, num_heads, head_dim = query.shape
    num_rows, max_blocks = block_tables.shape
    num_kv_heads, block_size = k_cache.shape[1], k_cache.shape[2]
    group = num_heads // num_kv_heads
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    room = workspace.room(num_rows)
    sizes = query.element_size(), k_cache.element_size()
    if batch_invariant:
        partition = least = workspace.partition
        tiles = invariant_tiles(head_dim, group, *sizes)
    else:
        partition, least = 0, LEAST_SPLIT.value
        tiles = decode_tiles(head_dim, group, *sizes, capability())
    splits = max(1, -(-max_blocks * block_size // least))
    if partition and splits > room:
        raise ArgumentError(f"workspace: {num_rows} rows of {splits} partitions do not fit: there is room for {room}")
    splits = min(splits, room)
    partials = (workspace.sums, workspace.maxima, workspace.weights)
    batch = (query_starts, context_lengths, num_rows, splits, partition)
    programs = multiprocessors(query.device) * PROGRAMS_PER_MULTIPROCESSOR
    exponent_factor, cap_factor, v_factor, window = factors(scores, k_cache)
    meta = compile_time(query, k_cache, scores, tiles)
    launch(
        _split_kernel,
        (num_rows, num_kv_heads, splits),
        out,
        *partials,
        query,
        as_stored(k_cache),
        as_stored(v_cache),
        block_tables,
        scores.sinks,
        *batch,
        query.stride(0),
        block_tables.stride(0),
        programs,
        exponent_factor,
        cap_factor,
        v_factor,
        window,
        HAS_PARTITIONS=batch_invariant,
        **meta,
    )
    launch(
        _merge_kernel,
        (num_rows, num_kv_heads) if splits > 1 else (0,),
        out,
        *partials,
        scores.sinks,
        *batch,
        programs,
        v_factor,
        window,
        HAS_PARTITIONS=batch_invariant,
        **meta,
    )
    return out


@triton.jit
def _splits_of(
    contexts_ptr,
    num_rows,
    context,
    window,
    programs,
    most_splits,
    partition,
    SHAPE: tl.constexpr,
    HAS_PARTITIONS: tl.constexpr,
):
    """Where a sequence's splits lie: (the first one's tile, tiles of each, how many). Every kernel that asks gets the
    same answer."""
    BLOCK_N: tl.constexpr = SHAPE[5]
    HAS_WINDOW: tl.constexpr = SHAPE[7]
    first_key = 0
    if HAS_WINDOW:
        first_key = tl.maximum(context - window, 0)
    end = tl.cdiv(context, BLOCK_N)
    if HAS_PARTITIONS:
        tiles = partition // BLOCK_N
        first = first_key // partition * tiles
    else:
        NUM_KV_HEADS: tl.constexpr = SHAPE[0]
        LEAST_TILES: tl.constexpr = LEAST_SPLIT // BLOCK_N
        all_tiles = tl.zeros([256], tl.int32)
        for row in range(0, num_rows, 256):
            rows = row + tl.arange(0, 256)
            keys = tl.load(contexts_ptr + rows, mask=rows < num_rows, other=0)
            if HAS_WINDOW:
                keys = tl.minimum(keys, window)
            all_tiles += tl.cdiv(keys, BLOCK_N)
        fair = tl.cdiv(tl.sum(all_tiles) * NUM_KV_HEADS, programs)
        first = first_key // BLOCK_N
        tiles = tl.maximum(tl.maximum(fair, tl.cdiv(end - first, most_splits)), LEAST_TILES)
    return first, tiles, tl.cdiv(end - first, tiles)


@triton.jit(do_not_specialize=["num_rows", "most_splits", "partition", "table_stride", "programs", "window"])
def _split_kernel(
    out_ptr,
    sums_ptr,
    maxima_ptr,
    weights_ptr,
    query_ptr,
    k_ptr,
    v_ptr,
    tables_ptr,
    sinks_ptr,
    starts_ptr,
    contexts_ptr,
    num_rows,
    most_splits,
    partition,  # its tokens; 0: none
    query_stride,
    table_stride,
    programs,
    exponent_factor,
    cap_factor,
    v_factor,
    window,
    GROUP: tl.constexpr,
    SHAPE: tl.constexpr,  # of `attend`
    BLOCK_M: tl.constexpr,
    HAS_PARTITIONS: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """One split of one sequence, for the query heads of one KV head. An only split is the result."""
    NUM_KV_HEADS: tl.constexpr = SHAPE[0]
    HEAD_DIM: tl.constexpr = SHAPE[1]
    BLOCK_D: tl.constexpr = SHAPE[3]
    FORMAT: tl.constexpr = SHAPE[6]
    NUM_HEADS: tl.constexpr = NUM_KV_HEADS * GROUP
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    token = tl.load(starts_ptr + row)
    context = tl.load(contexts_ptr + row)
    if (tl.load(starts_ptr + row + 1) == token) | (context <= 0):
        return
    first, tiles, count = _splits_of(
        contexts_ptr, num_rows, context, window, programs, most_splits, partition, SHAPE, HAS_PARTITIONS
    )
    if split >= count:
        return

    index, elements = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    heads, real = kv_head * GROUP + index, index < GROUP
    tokens = token + tl.zeros([BLOCK_M], tl.int32)
    query = for_products(load_queries(query_ptr, tokens, heads, real, query_stride, HEAD_DIM, BLOCK_D), FORMAT)
    positions = context - 1 + tl.zeros([BLOCK_M], tl.int32)
    low = first + split * tiles
    sequence = (k_ptr, v_ptr, tables_ptr + row.to(tl.int64) * table_stride, context, kv_head)
    factors = (exponent_factor, cap_factor, window)
    top, weight, total = first_state(sinks_ptr, heads, real, False, BLOCK_M, BLOCK_D)
    top, weight, total = attend(
        top,
        weight,
        total,
        query,
        positions,
        context - 1,
        context - 1,
        low,
        low + tiles,
        sequence,
        factors,
        SHAPE,
    )

    mask = real[:, None] & (elements < HEAD_DIM)[None, :]
    if count == 1:
        none_top, none_weight, none_total = first_state(sinks_ptr, heads, real, HAS_SINKS, BLOCK_M, BLOCK_D)
        top, weight, total = merge(none_top, none_weight, none_total, top, weight, total)
        out = attention_of(weight, total, v_factor).to(out_ptr.dtype.element_ty)
        offsets = (token.to(tl.int64) * NUM_HEADS + heads)[:, None] * HEAD_DIM + elements[None, :]
        tl.store(out_ptr + offsets, out, mask=mask)
    else:
        places = (row * most_splits + split).to(tl.int64) * NUM_HEADS + heads
        tl.store(maxima_ptr + places, top, mask=real)
        tl.store(weights_ptr + places, weight, mask=real)
        tl.store(sums_ptr + places[:, None] * HEAD_DIM + elements[None, :], total, mask=mask)


@triton.jit(do_not_specialize=["num_rows", "most_splits", "partition", "programs", "window"])
def _merge_kernel(
    out_ptr,
    sums_ptr,
    maxima_ptr,
    weights_ptr,
    sinks_ptr,
    starts_ptr,
    contexts_ptr,
    num_rows,
    most_splits,
    partition,
    programs,
    v_factor,
    window,
    GROUP: tl.constexpr,
    SHAPE: tl.constexpr,  # of `attend`
    BLOCK_M: tl.constexpr,
    HAS_PARTITIONS: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """All splits of one sequence in order, for the query heads of one KV head."""
    NUM_KV_HEADS: tl.constexpr = SHAPE[0]
    HEAD_DIM: tl.constexpr = SHAPE[1]
    BLOCK_D: tl.constexpr = SHAPE[3]
    NUM_HEADS: tl.constexpr = NUM_KV_HEADS * GROUP
    row, kv_head = tl.program_id(0), tl.program_id(1)
    token = tl.load(starts_ptr + row)
    context = tl.load(contexts_ptr + row)
    if (tl.load(starts_ptr + row + 1) == token) | (context <= 0):
        return
    _, _, count = _splits_of(
        contexts_ptr, num_rows, context, window, programs, most_splits, partition, SHAPE, HAS_PARTITIONS
    )
    if count == 1:
        return
    index, elements = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    heads, real = kv_head * GROUP + index, index < GROUP
    mask = real[:, None] & (elements < HEAD_DIM)[None, :]
    top, weight, total = first_state(sinks_ptr, heads, real, HAS_SINKS, BLOCK_M, BLOCK_D)
    for split in range(count):
        places = (row * most_splits + split).to(tl.int64) * NUM_HEADS + heads
        part_top = tl.load(maxima_ptr + places, mask=real, other=float("-inf"))
        part_weight = tl.load(weights_ptr + places, mask=real, other=0.0)
        part_total = tl.load(sums_ptr + places[:, None] * HEAD_DIM + elements[None, :], mask=mask, other=0.0)
        top, weight, total = merge(top, weight, total, part_top, part_weight, part_total)
    out = attention_of(weight, total, v_factor).to(out_ptr.dtype.element_ty)
    offsets = (token.to(tl.int64) * NUM_HEADS + heads)[:, None] * HEAD_DIM + elements[None, :]
    tl.store(out_ptr + offsets, out, mask=mask)
