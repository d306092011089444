"""What a request changes about its raw logits: bias, penalties, then the grammar's mask. Into a copy."""

import triton
import triton.language as tl

from headrace_kernels.sample_tokens.gpu.device_columns import (
    BIASES,
    COUNTS,
    FREQUENCY,
    NUM_BIASES,
    PRESENCE,
    REPETITION,
)
from headrace_kernels.sample_tokens.gpu.rows import NEVER, number, word


@triton.jit(do_not_specialize=["bias_width"])
def edit_kernel(
    logits_ptr,  # [places, vocab_size]
    logits_stride,
    edited_ptr,  # [edited, vocab_size] float32
    edited_places_ptr,  # [edited] which places
    rows_ptr,  # [places]
    parameters_ptr,
    counts_ptr,
    bias_ids_ptr,
    bias_values_ptr,
    bias_width,
    masks_ptr,  # [masks, ceil(vocab_size / 32)] int32
    mask_at_ptr,  # [edited] which mask, or −1
    vocab_size,
    HAS_MASKS: tl.constexpr,
    TILE: tl.constexpr,
):
    """One tile of one edited row."""
    at = tl.program_id(0)
    begin = tl.program_id(1) * TILE
    place = tl.load(edited_places_ptr + at)
    row = tl.load(rows_ptr + place)
    tokens = begin + tl.arange(0, TILE)
    inside = tokens < vocab_size
    x = tl.load(logits_ptr + place.to(tl.int64) * logits_stride + tokens, mask=inside, other=NEVER).to(tl.float32)
    x = _biased(x, tokens, begin, row, parameters_ptr, bias_ids_ptr, bias_values_ptr, bias_width, TILE)
    counted = word(parameters_ptr, row, COUNTS)
    if counted >= 0:
        counts = tl.load(counts_ptr + counted.to(tl.int64) * vocab_size + tokens, mask=inside, other=0)
        x = _penalized(x, counts, row, parameters_ptr)
    if HAS_MASKS:
        mask_at = tl.load(mask_at_ptr + at)
        if mask_at >= 0:
            words = tl.cdiv(vocab_size, 32)
            bits = tl.load(masks_ptr + mask_at.to(tl.int64) * words + tokens // 32, mask=inside, other=0)
            forbidden = ((bits >> (tokens % 32)) & 1) == 0
            x = tl.where(forbidden & (x == x), NEVER, x)  # a NaN stays: it refuses the row
    tl.store(edited_ptr + at.to(tl.int64) * vocab_size + tokens, x, mask=inside)


@triton.jit
def _biased(x, tokens, begin, row, parameters_ptr, bias_ids_ptr, bias_values_ptr, bias_width, TILE: tl.constexpr):
    """One bias after the other, in order: a token that is named twice gets both."""
    start = word(parameters_ptr, row, BIASES).to(tl.int64) * bias_width
    for i in range(0, word(parameters_ptr, row, NUM_BIASES)):
        token = tl.load(bias_ids_ptr + start + i)
        if (token >= begin) & (token < begin + TILE):
            x = tl.where(tokens == token, x + tl.load(bias_values_ptr + start + i), x)
    return x


@triton.jit
def _penalized(x, counts, row, parameters_ptr):
    """counts: 0 for a token that did not occur, else 1 + its occurrences in the answer."""
    repetition = number(parameters_ptr, row, REPETITION)
    times = (counts - 1).to(tl.float32)
    x = tl.where(counts > 0, tl.where(x < 0, x * repetition, tl.div_rn(x, repetition)), x)
    off = times * number(parameters_ptr, row, FREQUENCY) + number(parameters_ptr, row, PRESENCE)
    return tl.where(counts > 1, x - off, x)
