"""One step's sampling: raw logits of the rows that sample → tokens, and what was asked about them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_server.sampling.choose import choose
from headrace_server.sampling.edits import edit_logits
from headrace_server.sampling.logprobs import most_likely, of_chosen, raw_logprobs
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Floats, Ints


@dataclass(frozen=True, slots=True)
class Samples:
    """What the rows of one step sampled, in the order given."""

    ids: Tensor  # [rows] int64, on the device: the next step's inputs
    possible: Tensor  # [rows] bool: False where logits were NaN or all −∞; the id then means nothing
    logprobs: Floats  # [rows] of the raw logits; NaN for rows that did not ask
    top_ids: Ints  # [sum of top_n]
    top_logprobs: Floats  # [sum of top_n]


def sample(logits: Tensor, rows: Ints, indices: Ints, state: SamplingState) -> Samples:
    """Sample one token a row. Overwrites `logits` [rows, vocab_size] float32.

    indices [rows]: the place of the new token in its row's answer. A row's result depends on its own logits,
    parameters, history, seed and index only.
    """
    asking = state.logprobs[rows] | (state.top_n[rows] > 0)
    raw = raw_logprobs(logits, asking)
    edit_logits(logits, rows, state)
    ids, possible = choose(logits, rows, indices, state)
    penalized = state.penalized[rows]
    if penalized.any():
        state.history.append(rows[penalized], ids[torch.from_numpy(penalized).to(ids.device)])
    return Samples(ids, possible, of_chosen(raw, ids, len(rows)), *most_likely(raw, state.top_n[rows]))
