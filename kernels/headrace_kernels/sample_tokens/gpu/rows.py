"""What the kernels read of a row: parameters, logits, noise; and how the best of some tokens is found."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from headrace_kernels.gumbel_noise.triton import noise_of_quads
from headrace_kernels.sample_tokens.gpu.device_columns import SEED_HIGH, SEED_LOW, WORDS

GROUP = tl.constexpr(64)  # tokens; a row is searched through the largest of every group
INFINITY = tl.constexpr(float("inf"))
NEVER = tl.constexpr(float("-inf"))
NO_TOKEN = tl.constexpr(0x7FFFFFFF)


@triton.jit
def word(parameters_ptr, row, place: tl.constexpr):
    """One whole parameter of a row."""
    return tl.load(parameters_ptr + row.to(tl.int64) * WORDS + place)


@triton.jit
def number(parameters_ptr, row, place: tl.constexpr):
    """One float32 parameter of a row."""
    return word(parameters_ptr, row, place).to(tl.float32, bitcast=True)


class Source(NamedTuple):
    """Where the logits of one place are."""

    logits_ptr: Any  # [places, vocab_size]
    stride: Any
    place: Any
    edited_ptr: Any  # [edited, vocab_size] float32
    edited_at: Any  # −1: the place has no edits
    vocab_size: Any


@triton.jit
def load_logits(source, tokens):
    """A place's logits in float32, edited if it has edits; −∞ outside the vocabulary."""
    inside = tokens < source.vocab_size
    if source.edited_at >= 0:
        start = source.edited_at.to(tl.int64) * source.vocab_size
        x = tl.load(source.edited_ptr + start + tokens, mask=inside, other=NEVER).to(tl.float32)
    else:
        start = source.place.to(tl.int64) * source.stride
        x = tl.load(source.logits_ptr + start + tokens, mask=inside, other=NEVER).to(tl.float32)
    return x


@triton.jit
def noise_of(quads, row, index, parameters_ptr):
    """Gumbel noise of the four tokens of each quad, for the index-th token of the row's answer."""
    low = word(parameters_ptr, row, SEED_LOW).to(tl.uint32, bitcast=True)
    high = word(parameters_ptr, row, SEED_HIGH).to(tl.uint32, bitcast=True)
    index_low = index.to(tl.uint32, bitcast=True)
    return noise_of_quads(quads, low, high, index_low, index_low ^ index_low)


@triton.jit
def lowest_best(scores, tokens):
    """(the largest score, the lowest token that has it)"""
    best = tl.max(scores)
    return best, tl.min(tl.where(scores == best, tokens, NO_TOKEN))


@triton.jit
def is_finite(x):
    return x - x == 0.0
