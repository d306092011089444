"""The definition of `token_logprobs` in plain numpy, in float64."""

import numpy as np

from headrace_kernels.sample_tokens.columns import Floats, Ints


def token_logprobs(logits: Floats, tokens: Ints) -> Floats:
    """See `headrace_kernels.token_logprobs`."""
    exact = logits.astype(np.float64)
    highest = exact.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # ∞ − ∞ is NaN, which is the answer
        totals = highest[:, 0] + np.log(np.exp(exact - highest).sum(axis=1))
        return (exact[np.arange(len(tokens)), tokens] - totals).astype(np.float32)
