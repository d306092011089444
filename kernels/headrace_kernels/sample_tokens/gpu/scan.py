"""The first pass over all logits: the best token of every tile, and for rows with filters the largest of every 64."""

import triton
import triton.language as tl

from headrace_kernels.sample_tokens.gpu.device_columns import TEMPERATURE
from headrace_kernels.sample_tokens.gpu.rows import GROUP, INFINITY, Source, load_logits, lowest_best, noise_of, number


@triton.jit
def scan_kernel(
    logits_ptr,  # [places, vocab_size]
    logits_stride,
    edited_ptr,  # [edited, vocab_size] float32
    edited_at_ptr,  # [places] or −1
    filtered_at_ptr,  # [places] or −1
    rows_ptr,  # [places]
    indices_ptr,  # [places]
    parameters_ptr,
    tile_bests_ptr,  # [places, tiles] float32, written: +∞ where a logit is NaN
    tile_ids_ptr,  # [places, tiles] int32, written
    group_maxima_ptr,  # [filtered, groups] float32, written; not divided by the temperature
    vocab_size,
    TILE: tl.constexpr,
):
    """One tile of one row: with noise if the row samples without filters, else without."""
    place = tl.program_id(0)
    tile = tl.program_id(1)
    row = tl.load(rows_ptr + place)
    edited_at = tl.load(edited_at_ptr + place)
    filtered_at = tl.load(filtered_at_ptr + place)
    temperature = number(parameters_ptr, row, TEMPERATURE)
    groups = tile * (TILE // GROUP) + tl.arange(0, TILE // GROUP)
    tokens = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = load_logits(Source(logits_ptr, logits_stride, place, edited_ptr, edited_at, vocab_size), tokens)
    is_nan = tl.max((x != x).to(tl.int32))
    if filtered_at >= 0:
        num_groups = tl.cdiv(vocab_size, GROUP)
        out = group_maxima_ptr + filtered_at.to(tl.int64) * num_groups + groups
        tl.store(out, tl.max(x, axis=1), mask=groups < num_groups)
    scores = x
    if (temperature > 0) & (filtered_at < 0):
        quads = groups[:, None] * (GROUP // 4) + tl.arange(0, GROUP // 4)[None, :]
        scores = tl.div_rn(x, temperature) + noise_of(quads, row, tl.load(indices_ptr + place), parameters_ptr)
    best, token = lowest_best(scores, tokens)
    at = place.to(tl.int64) * tl.num_programs(1) + tile
    tl.store(tile_bests_ptr + at, tl.where(is_nan != 0, INFINITY, best))
    tl.store(tile_ids_ptr + at, token)
