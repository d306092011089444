"""One step's sampling on a CPU: raw logits of the rows that sample → tokens, and what was asked about them."""

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.sample_tokens import sample_tokens
from headrace_server.sampling.samples import Samples
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Floats, Ints

UNKNOWN, IMPOSSIBLE = -1, -2
"""In `known`: the row is to be sampled; the row's logits are NaN, +∞ or all −∞."""


def sample_on_cpu(
    logits: Floats, rows: Ints, indices: Ints, state: SamplingState, *, known: Ints | None = None
) -> Samples:
    """Sample one token a row, and add it to the row's history. Overwrites `logits`.

    logits   [rows that are not known, vocab_size], in the order of rows
    indices  [rows] the place of the new token in its row's answer
    known    [rows] or None: the arg-max where the language-model head has found it, which it may for rows that
             `state.plain` names; else UNKNOWN, which at least one is

    A row's result depends on its own logits, parameters, history, seed and index only.
    """
    if known is None:
        return sample_tokens(logits, rows, indices, state)
    asked = known == UNKNOWN
    some = sample_tokens(logits, rows[asked], indices[asked], state)
    ids, possible, logprobs = np.maximum(known, 0), known >= 0, np.full(len(rows), np.nan, np.float32)
    ids[asked], possible[asked], logprobs[asked] = some.ids, some.possible, some.logprobs
    return Samples(ids, possible, logprobs, some.top_ids, some.top_logprobs)  # who is known wants no likeliest tokens


def likeliest(ids: Ints, possible: NDArray[np.bool_]) -> Samples:
    """Of rows that asked for nothing but their arg-max."""
    unasked = np.full(len(ids), np.nan, np.float32)
    return Samples(ids, possible, unasked, ids[:0], unasked[:0])
