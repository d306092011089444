"""Rows with filters: what they leave, and which of that the noise chooses. One program a row, after `scan`.

The programs of a whole row's tiles have left the largest logit of every group of 64. Only groups in which something can
be are looked into from then on, and nothing is sorted: a cut is found by halving. The operations and their order are
those of candidates.h, on the same whole numbers, so the same tokens are left.
"""

import triton
import triton.language as tl

from headrace_kernels.sample_tokens.gpu.candidates import (
    BY_INFORMATION,
    BY_MASS,
    BY_RANK,
    Candidates,
    Kept,
    active_groups,
    cut_at,
    highest_kept,
    is_kept,
    kth_largest,
    list_active,
    scores_of,
    tokens_of,
    total_and_gap,
    weight_from,
)
from headrace_kernels.sample_tokens.gpu.device_columns import LOG_MIN_P, TEMPERATURE, TOP_K, TOP_P, TYPICAL_P
from headrace_kernels.sample_tokens.gpu.finish import conclude
from headrace_kernels.sample_tokens.gpu.mass import (
    LOWEST,
    MASS_OF_ONE,
    MASS_REACH,
    key_of,
    mass_of,
    mean_of,
    target_of,
    value_of,
    weight_of,
)
from headrace_kernels.sample_tokens.gpu.rows import (
    GROUP,
    INFINITY,
    NEVER,
    NO_TOKEN,
    Source,
    is_finite,
    load_logits,
    noise_of,
    number,
    word,
)

MARGIN = tl.constexpr(0.01)  # far more than a logarithm, an exponential or a quotient is wrong by


@triton.jit
def weigh_kernel(
    logits_ptr,  # [places, vocab_size]
    logits_stride,
    edited_ptr,  # [edited, vocab_size] float32
    edited_at_ptr,  # [places] or −1
    filtered_places_ptr,  # [filtered] which places
    rows_ptr,  # [places]
    parameters_ptr,
    tile_bests_ptr,  # [places, tiles]
    masses_ptr,  # [filtered, tiles, 2] int64, written: sums of masses, and of masses times gaps
    vocab_size,
    TILE: tl.constexpr,
    TILES: tl.constexpr,  # a row's tiles, and then the next power of two
):
    """The mass of one tile of one row, if its first filter is one of mass."""
    at = tl.program_id(0)
    tile = tl.program_id(1)
    place = tl.load(filtered_places_ptr + at)
    row = tl.load(rows_ptr + place)
    if _begins_with_mass(row, vocab_size, parameters_ptr):
        temperature = number(parameters_ptr, row, TEMPERATURE)
        edited_at = tl.load(edited_at_ptr + place)
        highest = tl.div_rn(_highest_logit(tile_bests_ptr, place, tl.num_programs(1), TILES), temperature)
        tokens = tile * TILE + tl.arange(0, TILE)
        x = load_logits(Source(logits_ptr, logits_stride, place, edited_ptr, edited_at, vocab_size), tokens)
        scores = tl.div_rn(x, temperature)
        gaps = tl.minimum(highest - scores, 88.0)  # infinity times no weight is no number
        weights = tl.where(scores >= highest - MASS_REACH, weight_of(gaps), 0.0)
        out = masses_ptr + (at.to(tl.int64) * tl.num_programs(1) + tile) * 2
        tl.store(out, tl.sum(mass_of(weights)))
        tl.store(out + 1, tl.sum(mass_of(weights * gaps)))


@triton.jit
def choose_kernel(
    logits_ptr,  # [places, vocab_size]
    logits_stride,
    edited_ptr,  # [edited, vocab_size] float32
    edited_at_ptr,  # [places] or −1
    filtered_places_ptr,  # [filtered] which places
    rows_ptr,  # [places]
    indices_ptr,  # [places]
    parameters_ptr,
    tile_bests_ptr,  # [places, tiles] +∞ where a logit is NaN
    group_maxima_ptr,  # [filtered, groups] float32
    masses_ptr,  # [filtered, tiles, 2] int64, of rows whose first filter is one of mass
    active_ptr,  # [filtered, groups] int32, for this kernel's own use
    counts_ptr,
    last_token_ptr,
    ids_ptr,  # [places] int64, written
    possible_ptr,  # [places] int32, written
    kept_ptr,  # [places, vocab_size] int8, zeros, or None: gets 1 for the tokens that the filters left
    vocab_size,
    num_tiles,
    TILES: tl.constexpr,  # the next power of two
    GROUPS: tl.constexpr,  # of a row, the next power of two
    CHUNK: tl.constexpr,  # groups of a pass's iteration
):
    """One row: which groups can matter, the filters in their order, then noise."""
    at = tl.program_id(0)
    place = tl.load(filtered_places_ptr + at)
    row = tl.load(rows_ptr + place)
    temperature = number(parameters_ptr, row, TEMPERATURE)
    highest_logit = _highest_logit(tile_bests_ptr, place, num_tiles, TILES)
    highest = tl.div_rn(highest_logit, temperature)
    possible = is_finite(highest_logit) & is_finite(highest)
    token = 0
    if possible:
        num_groups = tl.cdiv(vocab_size, GROUP)
        groups = tl.arange(0, GROUPS)
        first_group = at.to(tl.int64) * num_groups
        maxima = tl.load(group_maxima_ptr + first_group + groups, mask=groups < num_groups, other=NEVER)
        maxima = tl.div_rn(maxima, temperature)
        total = tl.zeros([], tl.int64)
        gap = tl.zeros([], tl.float32)
        if _begins_with_mass(row, vocab_size, parameters_ptr):
            total, gap = _whole_mass(masses_ptr + at.to(tl.int64) * num_tiles * 2, num_tiles, TILES)
        bound = _first_bound(maxima, num_groups, highest, total, gap, row, vocab_size, parameters_ptr)
        num_active = list_active(active_ptr + first_group, maxima, bound, num_groups, GROUPS)
        edited_at = tl.load(edited_at_ptr + place)
        source = Source(logits_ptr, logits_stride, place, edited_ptr, edited_at, vocab_size)
        candidates = Candidates(active_ptr + first_group, num_active, source, temperature)
        kept = _filtered(candidates, bound, highest, total, gap, row, vocab_size, parameters_ptr, CHUNK)
        index = tl.load(indices_ptr + place)
        token = _draw(candidates, kept, row, index, parameters_ptr, place, kept_ptr, vocab_size, CHUNK)
    conclude(place, row, token, possible, ids_ptr, possible_ptr, last_token_ptr, parameters_ptr, counts_ptr, vocab_size)


@triton.jit
def _highest_logit(tile_bests_ptr, place, num_tiles, TILES: tl.constexpr):
    tiles = tl.arange(0, TILES)
    bests = tl.load(tile_bests_ptr + place.to(tl.int64) * num_tiles + tiles, mask=tiles < num_tiles, other=NEVER)
    return tl.max(bests)


@triton.jit
def _begins_with_mass(row, vocab_size, parameters_ptr):
    """The filters take a share of everything's mass, because none before has dropped anything."""
    of_mass = (number(parameters_ptr, row, TYPICAL_P) < 1) | (number(parameters_ptr, row, TOP_P) < 1)
    return (word(parameters_ptr, row, TOP_K) >= vocab_size) & of_mass


@triton.jit
def _whole_mass(masses_ptr, num_tiles, TILES: tl.constexpr):
    """(the mass of a row, how far below the highest score it is in the mean)"""
    tiles = tl.arange(0, TILES)
    total = tl.sum(tl.load(masses_ptr + tiles * 2, mask=tiles < num_tiles, other=0))
    gaps = tl.sum(tl.load(masses_ptr + tiles * 2 + 1, mask=tiles < num_tiles, other=0))
    return total, mean_of(gaps, total)


@triton.jit
def _first_bound(maxima, num_groups, highest, total, gap, row, vocab_size, parameters_ptr):
    """A score below which no token can be left, from the largest scores of all groups."""
    top_k = word(parameters_ptr, row, TOP_K)
    typical_p = number(parameters_ptr, row, TYPICAL_P)
    top_p = number(parameters_ptr, row, TOP_P)
    bound = highest + number(parameters_ptr, row, LOG_MIN_P)
    if top_k < vocab_size:
        bound = tl.zeros([], tl.float32) + LOWEST
        if top_k <= num_groups:  # as many tokens are as large as the k-th largest maximum
            bound = tl.maximum(kth_largest(maxima, top_k, highest), LOWEST)
    elif typical_p < 1:
        # A token twice as far from the highest as the mean is further from the entropy than all above it, so those
        # come before it, and it is left out as from top-p.
        bound = highest - tl.maximum(2 * gap + MARGIN, _reach_of_share(total, typical_p, vocab_size))
    elif top_p < 1:
        bound = highest - _reach_of_share(total, top_p, vocab_size)
    return bound


@triton.jit
def _reach_of_share(total, share, vocab_size):
    """How far below the highest score a token can be that is among the likeliest which hold the share.

    If all that weigh less than e^-reach were dropped, they would together be less than what may go.
    """
    each = (total - target_of(share, total)).to(tl.float32) / vocab_size
    # Of fewer than 256 units rounding to whole ones would matter.
    return tl.where(each < 256.0, MASS_REACH, MARGIN - tl.log(each / MASS_OF_ONE))


@triton.jit
def _filtered(candidates, bound, highest, total, gap, row, vocab_size, parameters_ptr, CHUNK: tl.constexpr):
    """The filters one after the other; returns what they leave as `kept`."""
    top_k = word(parameters_ptr, row, TOP_K)
    typical_p = number(parameters_ptr, row, TYPICAL_P)
    top_p = number(parameters_ptr, row, TOP_P)
    zero = tl.zeros([], tl.float32)
    mean = zero
    reach = zero + INFINITY
    if top_k < vocab_size:
        kept = Kept(bound, highest, mean, reach)
        low = key_of(bound)
        if weight_from(candidates, kept, low, highest, BY_RANK, CHUNK) > top_k:
            bound = value_of(cut_at(candidates, kept, top_k, low, key_of(highest), highest, BY_RANK, CHUNK))
    if typical_p < 1:
        if top_k < vocab_size:
            total, gap = total_and_gap(candidates, Kept(bound, highest, mean, reach), highest, CHUNK)
        mean = gap
        kept = Kept(bound, highest, mean, reach)
        target = target_of(typical_p, total)
        last = cut_at(candidates, kept, target, -1 - key_of(reach), key_of(zero) - 1, highest, BY_INFORMATION, CHUNK)
        reach = value_of(-1 - last)
    if top_p < 1:
        kept = Kept(bound, highest, mean, reach)
        top = highest
        if typical_p < 1:
            top = highest_kept(candidates, kept, CHUNK)
        if (top_k < vocab_size) | (typical_p < 1):
            total = total_and_gap(candidates, kept, top, CHUNK)[0]
        target = target_of(top_p, total)
        bound = value_of(cut_at(candidates, kept, target, key_of(bound), key_of(top), top, BY_MASS, CHUNK))
    log_min_p = number(parameters_ptr, row, LOG_MIN_P)
    if log_min_p > NEVER:
        top = highest_kept(candidates, Kept(bound, highest, mean, reach), CHUNK)
        bound = tl.maximum(bound, top + log_min_p)
    return Kept(bound, highest, mean, reach)


@triton.jit
def _draw(candidates, kept, row, index, parameters_ptr, place, kept_ptr, vocab_size, CHUNK: tl.constexpr):
    """The arg-max of scores and noise among the kept tokens, the lowest among equals."""
    best = tl.full([CHUNK, GROUP], NEVER, tl.float32)
    token_of_best = tl.full([CHUNK, GROUP], NO_TOKEN, tl.int32)
    for first in range(0, candidates.num_active, CHUNK):
        groups = active_groups(candidates, first, CHUNK)
        tokens = tokens_of(groups)
        scores = scores_of(candidates, tokens)
        left = is_kept(scores, kept)
        if kept_ptr is not None:
            tl.store(kept_ptr + place.to(tl.int64) * vocab_size + tokens, left.to(tl.int8), mask=left)
        quads = groups * (GROUP // 4) + tl.arange(0, GROUP // 4)[None, :]
        sums = tl.where(left, scores + noise_of(quads, row, index, parameters_ptr), NEVER)
        is_better = sums > best  # tokens rise from pass to pass, so the lowest of equals stays
        best = tl.where(is_better, sums, best)
        token_of_best = tl.where(is_better, tokens, token_of_best)
    highest = tl.max(best)
    return tl.min(tl.where(best == highest, token_of_best, NO_TOKEN))
