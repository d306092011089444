"""Triton: the softmax of some rows over tiles of keys, which decode and chunks share.

A tile's rows are the queries of consecutive tokens times the query heads of one KV head: row m is head m % GROUP of
token m // GROUP, so that all of them use the keys that were read. What is known of a row so far is a *state*:

    top     the largest score, in units of log 2; -inf before the first key
    weight  the sum of exp2(score - top)
    total   the sum of exp2(score - top) * value
"""

import triton
import triton.language as tl

from headrace_kernels.gpu.float8 import widen


@triton.jit
def load_queries(query_ptr, tokens, heads, real, query_stride, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """[rows, BLOCK_D], zero where not real and behind the head."""
    elements = tl.arange(0, BLOCK_D)
    offsets = tokens.to(tl.int64) * query_stride + heads * HEAD_DIM  # tokens of a wide matrix pass 2^31 elements
    mask = real[:, None] & (elements < HEAD_DIM)[None, :]
    return tl.load(query_ptr + offsets[:, None] + elements[None, :], mask=mask, other=0.0)


@triton.jit
def for_products(query, FORMAT: tl.constexpr):
    """Queries in the type of the products: with 8-bit caches float16, which holds what these hold."""
    if FORMAT == "same" or query.dtype == tl.float32:
        operand = query
    else:
        operand = tl.clamp(query.to(tl.float32), -65504.0, 65504.0).to(tl.float16)
    return operand


@triton.jit
def first_state(sinks_ptr, heads, real, HAS_SINKS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr):
    """The state before the first key: nothing, or a sink, whose value is zero."""
    if HAS_SINKS:
        top = tl.load(sinks_ptr + heads, mask=real, other=0.0) * 1.4426950408889634  # log2(e)
        weight = tl.full([BLOCK_M], 1.0, tl.float32)
    else:
        top = tl.full([BLOCK_M], float("-inf"), tl.float32)
        weight = tl.zeros([BLOCK_M], tl.float32)
    return top, weight, tl.zeros([BLOCK_M, BLOCK_D], tl.float32)


@triton.jit
def merge(top, weight, total, other_top, other_weight, other_total):
    """The state of the keys of both. Sums are fused by hand, so that they round alike in every kernel."""
    new_top = tl.maximum(top, other_top)
    anchor = tl.where(new_top == float("-inf"), 0.0, new_top)
    mine, others = tl.exp2(top - anchor), tl.exp2(other_top - anchor)
    new_weight = tl.fma(weight, mine, other_weight * others)
    return new_top, new_weight, tl.fma(total, mine[:, None], other_total * others[:, None])


@triton.jit
def attention_of(weight, total, v_factor):
    """What a state means; zero for rows that saw no key."""
    return total / tl.where(weight == 0.0, 1.0, weight)[:, None] * v_factor


@triton.jit
def attend(
    top,
    weight,
    total,
    query,  # [BLOCK_M, BLOCK_D] of `for_products`
    positions,  # [BLOCK_M] of the queries
    first_position,
    last_position,  # the least and the most of them
    low,
    high,  # tiles that may be used
    sequence,  # pointers to keys and values, to its block table; its context, the KV head
    factors,  # what makes scores exponents of 2; what makes query · key twice the exponent of tanh; the window
    SHAPE: tl.constexpr,  # as it is unpacked below
):
    """The state with those keys of tiles [low, high) added that the queries see.

    Tiles that no query sees are not visited; masked are only those at the window's beginning (part 0) and at the
    diagonal (part 2). A key that a row doesn't see changes no bit of its state: so a row's bits don't depend on
    whether a tile was masked for the sake of its neighbours.
    """
    k_ptr, v_ptr, table_ptr, context, kv_head = sequence
    exponent_factor, cap_factor, window = factors
    NUM_KV_HEADS: tl.constexpr = SHAPE[0]
    HEAD_DIM: tl.constexpr = SHAPE[1]
    PADDED_DIM: tl.constexpr = SHAPE[2]
    BLOCK_D: tl.constexpr = SHAPE[3]
    BLOCK_SIZE: tl.constexpr = SHAPE[4]
    BLOCK_N: tl.constexpr = SHAPE[5]
    FORMAT: tl.constexpr = SHAPE[6]
    HAS_WINDOW: tl.constexpr = SHAPE[7]
    HAS_CAP: tl.constexpr = SHAPE[8]
    elements = tl.arange(0, BLOCK_D)
    in_head = (elements < HEAD_DIM)[None, :]
    high = tl.minimum(high, last_position // BLOCK_N + 1)
    all_seen = low
    if HAS_WINDOW:
        low = tl.maximum(low, tl.maximum(first_position - window + 1, 0) // BLOCK_N)
        all_seen = tl.cdiv(tl.maximum(last_position - window + 1, 0), BLOCK_N)
        all_seen = tl.minimum(tl.maximum(all_seen, low), high)
    diagonal = tl.minimum(tl.maximum((first_position + 1) // BLOCK_N, all_seen), high)
    for part in tl.static_range(0 if HAS_WINDOW else 1, 3):
        begin = low if part == 0 else (all_seen if part == 1 else diagonal)
        end = all_seen if part == 0 else (diagonal if part == 1 else high)
        for tile in range(begin, end):
            keys = tile * BLOCK_N + tl.arange(0, BLOCK_N)
            # What lies behind the context may be anything, and zero times that is not zero.
            there = in_head if part == 1 else in_head & (keys < context)[:, None]
            blocks = tl.load(table_ptr + keys // BLOCK_SIZE, mask=None if part == 1 else keys < context)
            # Widened first: a cache passes 2^31 elements.
            offsets = (blocks.to(tl.int64) * NUM_KV_HEADS + kv_head) * (BLOCK_SIZE * PADDED_DIM)
            offsets = (offsets + (keys % BLOCK_SIZE) * PADDED_DIM)[:, None] + elements[None, :]
            if part == 1 and HEAD_DIM == BLOCK_D:
                key, value = tl.load(k_ptr + offsets), tl.load(v_ptr + offsets)
            else:
                key = tl.load(k_ptr + offsets, mask=there, other=0)
                value = tl.load(v_ptr + offsets, mask=there, other=0)
            key, value = widen(key, FORMAT).to(query.dtype), widen(value, FORMAT).to(query.dtype)

            scores = tl.dot(query, tl.trans(key), input_precision="ieee")
            if HAS_CAP:  # tanh(x) = 1 - 2 / (exp(2x) + 1)
                scores = 1.0 - 2.0 / (tl.exp2(scores * cap_factor) + 1.0)
            if part != 1:
                seen = keys[None, :] <= positions[:, None]
                if HAS_WINDOW:
                    seen &= keys[None, :] > positions[:, None] - window
                scores = tl.where(seen, scores, float("-inf"))
            new_top = tl.maximum(top, tl.max(scores, 1) * exponent_factor)
            anchor = tl.where(new_top == float("-inf"), 0.0, new_top)
            # Fused by hand: it rounds alike with a mask and without.
            likely = tl.exp2(tl.fma(scores, exponent_factor, -anchor[:, None]))
            shrunk = tl.exp2(top - anchor)
            weight = tl.fma(weight, shrunk, tl.sum(likely, 1))
            total = tl.dot(likely.to(query.dtype), value, total * shrunk[:, None], input_precision="ieee")
            top = new_top
    return top, weight, total
