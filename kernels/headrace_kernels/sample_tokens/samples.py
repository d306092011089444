"""What the rows of one step sampled."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.sample_tokens.columns import Floats, Ints


@dataclass(frozen=True, slots=True)
class Samples:
    """One entry per row, in the order given."""

    ids: Ints  # [rows]
    possible: NDArray[np.bool_]  # [rows] False where logits were NaN, +∞ or all −∞; the id then means nothing
    logprobs: Floats  # [rows] of the raw logits; NaN for rows that want no report
    top_ids: Ints  # [sum of top_n] each row's likeliest tokens, likeliest first, one row after the other
    top_logprobs: Floats  # [sum of top_n]


def empty_samples(num_rows: int, num_top: int) -> Samples:
    """To be filled in."""
    return Samples(
        np.zeros(num_rows, np.int64),
        np.zeros(num_rows, np.bool_),
        np.full(num_rows, np.nan, np.float32),
        np.zeros(num_top, np.int64),
        np.full(num_top, np.nan, np.float32),
    )
