"""The tokens of a row among which filters choose, and sums over them.

A row's *active groups* are the groups of 64 tokens that can hold one. A list of them is in memory, and every pass reads
their logits again, from the caches.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from headrace_kernels.sample_tokens.gpu.mass import key_of, mass_of, mean_of, value_of, weight_of
from headrace_kernels.sample_tokens.gpu.rows import GROUP, NEVER, load_logits

BY_RANK = tl.constexpr(0)  # each token weighs 1; the highest score comes first
BY_MASS = tl.constexpr(1)  # its probability; the highest score comes first
BY_INFORMATION = tl.constexpr(2)  # its probability; the information nearest to the entropy comes first


class Candidates(NamedTuple):
    """What passes go over."""

    groups_ptr: Any  # the active groups
    num_active: Any
    source: Any  # Source
    temperature: Any


class Kept(NamedTuple):
    """What the filters left so far: those with both a score and an information that is near enough to the entropy."""

    bound: Any  # the least score
    highest: Any  # score of all
    mean: Any  # how far below the highest a token is whose information is the entropy
    reach: Any  # the most that a token's information is away from it; ∞: not filtered by it


@triton.jit
def kth_largest(maxima, k, highest):
    """The k-th largest of some numbers of which `highest` is the largest: by halving, in registers."""
    keys = key_of(maxima)
    low = key_of(tl.zeros([], tl.float32) + NEVER).to(tl.int64)
    high = key_of(highest).to(tl.int64)
    while low < high:
        middle = low + (high - low + 1) // 2
        if tl.sum((keys >= middle.to(tl.int32)).to(tl.int32)) >= k:
            low = middle
        else:
            high = middle - 1
    return value_of(low.to(tl.int32))


@triton.jit
def list_active(groups_ptr, maxima, bound, num_groups, GROUPS: tl.constexpr):
    """Write the groups whose largest score is at least `bound`, in order; returns how many they are."""
    groups = tl.arange(0, GROUPS)
    is_active = ((maxima >= bound) & (groups < num_groups)).to(tl.int32)
    tl.store(groups_ptr + tl.cumsum(is_active) - 1, groups, mask=is_active != 0)
    tl.debug_barrier()  # other threads read the list than have written it
    return tl.sum(is_active)


@triton.jit
def active_groups(candidates, first, CHUNK: tl.constexpr):
    """[CHUNK, 1] from the first-th on; past the last one a group outside the vocabulary."""
    active = first + tl.arange(0, CHUNK)
    outside = candidates.source.vocab_size // GROUP + 1
    return tl.load(candidates.groups_ptr + active, mask=active < candidates.num_active, other=outside)[:, None]


@triton.jit
def tokens_of(groups):
    return groups * GROUP + tl.arange(0, GROUP)[None, :]


@triton.jit
def scores_of(candidates, tokens):
    """Of tokens; outside the vocabulary −∞."""
    return tl.div_rn(load_logits(candidates.source, tokens), candidates.temperature)


@triton.jit
def _distance(scores, kept):
    """Between information and entropy."""
    return tl.abs((kept.highest - scores) - kept.mean)


@triton.jit
def is_kept(scores, kept):
    return (scores >= kept.bound) & (_distance(scores, kept) <= kept.reach)


@triton.jit
def weight_from(candidates, kept, cut, top, ORDER: tl.constexpr, CHUNK: tl.constexpr):
    """What the kept tokens whose key in the order is at least `cut` weigh together; a mass counts from `top`."""
    sums = tl.zeros([CHUNK, GROUP], tl.int64)
    for first in range(0, candidates.num_active, CHUNK):
        scores = scores_of(candidates, tokens_of(active_groups(candidates, first, CHUNK)))
        keys = -1 - key_of(_distance(scores, kept)) if ORDER == BY_INFORMATION else key_of(scores)
        taken = is_kept(scores, kept) & (keys >= cut)
        if ORDER == BY_RANK:
            sums += taken.to(tl.int64)
        else:
            sums += tl.where(taken, mass_of(weight_of(top - scores)), 0)
    return tl.sum(sums)


@triton.jit
def cut_at(candidates, kept, target, low, high, top, ORDER: tl.constexpr, CHUNK: tl.constexpr):
    """The largest key in [low, high] such that the kept tokens with it or a larger one weigh at least `target`.

    By halving: a pass over the candidates for each bit in which low and high differ, 32 at most.
    """
    low = low.to(tl.int64)
    high = high.to(tl.int64)
    while low < high:
        middle = low + (high - low + 1) // 2
        if weight_from(candidates, kept, middle.to(tl.int32), top, ORDER, CHUNK) >= target:
            low = middle
        else:
            high = middle - 1
    return low.to(tl.int32)


@triton.jit
def total_and_gap(candidates, kept, top, CHUNK: tl.constexpr):
    """(the mass of the kept tokens, how far below `top` they are in the mean); a mass counts from `top`."""
    masses = tl.zeros([CHUNK, GROUP], tl.int64)
    gaps = tl.zeros([CHUNK, GROUP], tl.int64)
    for first in range(0, candidates.num_active, CHUNK):
        scores = scores_of(candidates, tokens_of(active_groups(candidates, first, CHUNK)))
        gap = tl.minimum(top - scores, 88.0)  # infinity times no weight is no number
        weights = tl.where(is_kept(scores, kept), weight_of(gap), 0.0)
        masses += mass_of(weights)
        gaps += mass_of(weights * gap)
    total = tl.sum(masses)
    return total, mean_of(tl.sum(gaps), total)


@triton.jit
def highest_kept(candidates, kept, CHUNK: tl.constexpr):
    """The highest score that the filters left: the typical one may have dropped the likeliest."""
    best = tl.full([CHUNK, GROUP], NEVER, tl.float32)
    for first in range(0, candidates.num_active, CHUNK):
        scores = scores_of(candidates, tokens_of(active_groups(candidates, first, CHUNK)))
        best = tl.maximum(best, tl.where(is_kept(scores, kept), scores, NEVER))
    return tl.max(best)
