"""What rows asked about their raw logits: the log-probability of their token, and their likeliest tokens."""

import triton
import triton.language as tl

from headrace_kernels.sample_tokens.gpu.candidates import (
    BY_RANK,
    Candidates,
    Kept,
    active_groups,
    cut_at,
    kth_largest,
    list_active,
    scores_of,
    tokens_of,
    weight_from,
)
from headrace_kernels.sample_tokens.gpu.mass import key_of, value_of
from headrace_kernels.sample_tokens.gpu.rows import GROUP, INFINITY, NEVER, Source, is_finite, load_logits
from headrace_kernels.token_logprobs.triton import logprob

RANKED = tl.constexpr(64)  # tokens that are compared with as many others at once


@triton.jit
def logprobs_kernel(
    logits_ptr,  # [places, vocab_size]
    logits_stride,
    reported_places_ptr,  # [reported]
    totals_ptr,  # [reported, 2]
    ids_ptr,  # [places] int64
    possible_ptr,  # [places] int32
    logprobs_ptr,  # [reported] float32, written
):
    """The log-probability of one row's token; NaN if it has none."""
    at = tl.program_id(0)
    place = tl.load(reported_places_ptr + at)
    logit = tl.load(logits_ptr + place.to(tl.int64) * logits_stride + tl.load(ids_ptr + place)).to(tl.float32)
    value = logprob(logit, totals_ptr, at)
    tl.store(logprobs_ptr + at, tl.where(tl.load(possible_ptr + place) != 0, value, float("nan")))


@triton.jit
def maxima_kernel(
    logits_ptr,  # [places, vocab_size]
    logits_stride,
    reported_places_ptr,  # [reported]
    top_n_ptr,  # [reported]
    group_maxima_ptr,  # [reported, groups] float32, written
    vocab_size,
    TILE: tl.constexpr,
):
    """The largest of every group of one tile of one row that wants its likeliest tokens."""
    at = tl.program_id(0)
    if tl.load(top_n_ptr + at) > 0:
        place = tl.load(reported_places_ptr + at)
        groups = tl.program_id(1) * (TILE // GROUP) + tl.arange(0, TILE // GROUP)
        tokens = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        x = load_logits(Source(logits_ptr, logits_stride, place, logits_ptr, -1, vocab_size), tokens)
        num_groups = tl.cdiv(vocab_size, GROUP)
        out = group_maxima_ptr + at.to(tl.int64) * num_groups + groups
        tl.store(out, tl.max(x, axis=1), mask=groups < num_groups)


@triton.jit
def likeliest_kernel(
    logits_ptr,  # [places, vocab_size]
    logits_stride,
    reported_places_ptr,  # [reported]
    top_n_ptr,  # [reported]
    top_starts_ptr,  # [reported] where its likeliest tokens go
    totals_ptr,  # [reported, 2]
    group_maxima_ptr,  # [reported, groups] float32
    active_ptr,  # [reported, groups] int32, for this kernel's own use
    found_ids_ptr,  # [sum of top_n] int32, for this kernel's own use
    found_logits_ptr,  # [sum of top_n] float32, for this kernel's own use
    top_ids_ptr,  # [sum of top_n] int32, written
    top_logprobs_ptr,  # [sum of top_n] float32, written
    vocab_size,
    GROUPS: tl.constexpr,  # of a row, the next power of two
    CHUNK: tl.constexpr,  # groups of a pass's iteration
):
    """One row's likeliest tokens: found by a cut, then ordered by counting who comes before each."""
    at = tl.program_id(0)
    top_n = tl.load(top_n_ptr + at)
    start = tl.load(top_starts_ptr + at)
    place = tl.load(reported_places_ptr + at)
    highest = tl.load(totals_ptr + at * 2)
    if is_finite(highest):
        if top_n > 0:
            num_groups = tl.cdiv(vocab_size, GROUP)
            groups = tl.arange(0, GROUPS)
            first_group = at.to(tl.int64) * num_groups
            maxima = tl.load(group_maxima_ptr + first_group + groups, mask=groups < num_groups, other=NEVER)
            bound = tl.zeros([], tl.float32) + NEVER
            if top_n <= num_groups:
                bound = kth_largest(maxima, top_n, highest)
            num_active = list_active(active_ptr + first_group, maxima, bound, num_groups, GROUPS)
            source = Source(logits_ptr, logits_stride, place, logits_ptr, -1, vocab_size)
            candidates = Candidates(active_ptr + first_group, num_active, source, 1.0)
            _find(candidates, bound, highest, top_n, found_ids_ptr + start, found_logits_ptr + start, CHUNK)
            for first in range(0, top_n, RANKED):
                own = first + tl.arange(0, RANKED)
                tokens = tl.load(found_ids_ptr + start + own, mask=own < top_n, other=0)
                logits = tl.load(found_logits_ptr + start + own, mask=own < top_n, other=0.0)
                ranks = start + _ranks(tokens, logits, found_ids_ptr + start, found_logits_ptr + start, top_n)
                tl.store(top_ids_ptr + ranks, tokens, mask=own < top_n)
                tl.store(top_logprobs_ptr + ranks, logprob(logits, totals_ptr, at), mask=own < top_n)
    else:
        for i in range(0, top_n):
            tl.store(top_ids_ptr + start + i, 0)
            tl.store(top_logprobs_ptr + start + i, float("nan"))


@triton.jit
def _find(candidates, bound, highest, top_n, ids_ptr, logits_ptr, CHUNK: tl.constexpr):
    """Write the top_n largest: those above the cut, then as many of the cut's equals as there is room for, each in the
    order of ids. (So what is outside the vocabulary comes after everything in it, even if the cut is −∞.)"""
    kept = Kept(bound, highest, 0.0, INFINITY)
    cut = cut_at(candidates, kept, top_n, key_of(bound), key_of(highest), highest, BY_RANK, CHUNK)
    above = 0
    equal = weight_from(candidates, kept, cut + 1, highest, BY_RANK, CHUNK).to(tl.int32)
    for first in range(0, candidates.num_active, CHUNK):
        tokens = tl.reshape(tokens_of(active_groups(candidates, first, CHUNK)), [CHUNK * GROUP])
        scores = scores_of(candidates, tokens)
        is_above = (scores > value_of(cut)).to(tl.int32)
        is_equal = (scores == value_of(cut)).to(tl.int32)
        to = tl.where(is_above != 0, above + tl.cumsum(is_above), equal + tl.cumsum(is_equal)) - 1
        is_found = (is_above + is_equal != 0) & (to < top_n)
        tl.store(ids_ptr + to, tokens, mask=is_found)
        tl.store(logits_ptr + to, scores, mask=is_found)
        above += tl.sum(is_above)
        equal += tl.sum(is_equal)
    tl.debug_barrier()  # other threads read these than have written them


@triton.jit
def _ranks(tokens, logits, ids_ptr, logits_ptr, top_n):
    """[RANKED]: how many of the found ones come before each of these; the lower id does among equals."""
    ranks = tl.zeros([RANKED], tl.int32)
    for first in range(0, top_n, RANKED):
        other = first + tl.arange(0, RANKED)
        others = tl.load(ids_ptr + other, mask=other < top_n, other=0)
        their_logits = tl.load(logits_ptr + other, mask=other < top_n, other=float("nan"))
        is_larger = their_logits[None, :] > logits[:, None]
        is_lower = (their_logits[None, :] == logits[:, None]) & (others[None, :] < tokens[:, None])
        ranks += tl.sum((is_larger | is_lower).to(tl.int32), axis=1)
    return ranks
