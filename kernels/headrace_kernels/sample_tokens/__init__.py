"""Logits → tokens: everything that a step does after the language-model head, in one call without torch."""

import numpy as np
from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.sample_tokens import cpu, reference
from headrace_kernels.sample_tokens.checks import check_arguments
from headrace_kernels.sample_tokens.columns import Columns, Floats, Ints, SparseRows
from headrace_kernels.sample_tokens.samples import Samples

__all__ = ["Columns", "Samples", "SparseRows", "sample_tokens"]


def sample_tokens(
    logits: Floats,
    rows: Ints,
    indices: Ints,
    columns: Columns,
    *,
    kept: NDArray[np.bool_] | None = None,
    backend: str | None = None,
) -> Samples:
    """Choose one token a row.

    logits   [num_rows, vocab_size] float32, contiguous but for the first axis; overwritten with what bias and
             penalties make of them
    rows     [num_rows] int64: each one's place in `columns`. A row that penalises may stand there once only, because
             the token that it gets is added to its history
    indices  [num_rows] int64: index of the new token among the row's generated ones
    columns  parameters, biases and histories, on the host
    kept     [num_rows, vocab_size] bool, contiguous, or None: filled, for rows that are not greedy, with which tokens
             the filters left. For tests and for looking

    Of each row, with x its logits in float32:

        log-probability = x - log(sum(exp(x)))             what `logprobs` and `top_n` report, of the raw logits
        x[t] += bias                                       for each biased token, in order
        x[t] = x[t] * r if x[t] < 0 else x[t] / r          for each token of prompt or answer, r = repetition penalty
        x[t] -= count * frequency + presence               for each token that the answer has, count times
        greedy: token = argmax(x)                          the lowest id among equals
        s = x / temperature
        top-k      s >= the k-th largest                   of the finite ones
        typical    d <= the least d that holds the mass    d = |(max - s) - mean(max - s)|: information against entropy
        top-p      s >= the largest s that holds the mass  the mass of what the filters above left is 1
        min-p      s >= max + log(min_p)
        token = argmax(s + gumbel_noise(seed, index))      of those left, the lowest id among equals

    A cut keeps all that are equal to it, and each filter keeps at least one. Mass is counted in whole units of 2^-42 of
    the likeliest token's, so its sums have no order; a token without a unit (e^-29.8 and less) is in no share of it.

    A row's bits depend on its own logits and parameters only. Cost on one core, AVX-512, per element of the
    vocabulary: a greedy row, and what every row starts with, 1 read (0.07 ns in cache) for the largest of every 64
    logits. Beyond it only those groups of 64 are read in which something can be: for top-k those above the k-th
    largest group, for top-p first those within e^-30 of the best, for their mass (an exponential each), then the few
    that can lie above the cut; for noise those within 19.5 of the best. A cut is found by up to four passes of
    histograms over what was found, not by sorting.

    Row with logits [1, 3, 2], temperature 1, top_k 2: tokens 1 and 2 are left, and token 1 comes with probability
    e / (e + 1) = 0.731.
    """
    check_arguments(logits, rows, indices, columns, kept)
    if backend != "reference" and native.available():
        return cpu.sample_tokens(logits, rows, indices, columns, kept)
    return reference.sample_tokens(logits, rows, indices, columns, kept)
