"""Which of a step's rows need which kernels: known on the host from their parameters, without a look at the device."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.sample_tokens.columns import Columns, Ints


@dataclass(frozen=True)
class Plan:
    """Places are positions in the step's logits."""

    edited: Ints  # places with a bias, penalties or a mask
    filtered: Ints  # places whose token filters choose among
    reported: Ints  # places that want log-probabilities
    top_n: Ints  # [reported] how many likeliest tokens each wants

    @property
    def num_top(self) -> int:
        """Likeliest tokens of all rows together."""
        return int(self.top_n.sum())


def plan_of(rows: Ints, columns: Columns, vocab_size: int, masked: NDArray[np.bool_] | None) -> Plan:
    """rows [places]: each one's place in `columns`; masked [places]: which have a mask, or None."""
    edited = (columns.history.lengths[rows] > 0) | (columns.biases.lengths[rows] > 0)
    if masked is not None:
        edited = edited | masked
    filters = (columns.top_k[rows] < vocab_size) | (columns.typical_p[rows] < 1)
    filters |= (columns.top_p[rows] < 1) | (columns.min_p[rows] > 0)
    filtered = (columns.temperature[rows] > 0) & filters
    top_n = columns.top_n[rows]
    reported = np.flatnonzero(columns.logprobs[rows] | (top_n > 0))
    return Plan(np.flatnonzero(edited), np.flatnonzero(filtered), reported, top_n[reported])


def positions(places: Ints, num_places: int) -> Ints:
    """[num_places]: where each place is in `places`, or −1."""
    at = np.full(num_places, -1, np.int64)
    at[places] = np.arange(len(places))
    return at
