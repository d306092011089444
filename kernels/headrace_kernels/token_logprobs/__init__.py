"""How likely given tokens are, for prompt log-probabilities: on plain memory, without torch."""

import numpy as np

from headrace_kernels import native
from headrace_kernels.errors import ArgumentError, out_of_range
from headrace_kernels.sample_tokens.checks import check_logits, check_per_row
from headrace_kernels.sample_tokens.columns import Floats, Ints
from headrace_kernels.token_logprobs import cpu, reference

__all__ = ["token_logprobs"]


def token_logprobs(logits: Floats, tokens: Ints, *, backend: str | None = None) -> Floats:
    """The log-probability of one token of each row.

    logits   [num_rows, vocab_size] float32, contiguous but for the first axis; only read
    tokens   [num_rows] int64 in [0, vocab_size)
    returns  [num_rows] float32; NaN where logits are NaN, +∞ or all −∞

        out[i] = logits[i, tokens[i]] - log(sum(exp(logits[i])))

    With the same bits as `sample_tokens` reports them. An exponential for each token within e^-30 of the likeliest.

    Row [0, log 3], token 1: log(3 / 4) = -0.2877.
    """
    check_logits(logits)
    check_per_row("tokens", tokens, len(logits))
    outside = (tokens < 0) | (tokens >= logits.shape[1])
    if outside.any():
        place = int(np.flatnonzero(outside)[0])
        raise ArgumentError(out_of_range("tokens", str(place), int(tokens[place]), 0, logits.shape[1]))
    if backend != "reference" and native.available():
        return cpu.token_logprobs(logits, tokens)
    return reference.token_logprobs(logits, tokens)
