"""One step's sampling with torch: raw logits of the rows that sample → tokens, and what was asked about them."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from headrace_server.sampling.on_torch.choose import choose
from headrace_server.sampling.on_torch.edits import edit_logits
from headrace_server.sampling.on_torch.logprobs import most_likely, of_chosen, raw_logprobs
from headrace_server.sampling.samples import Samples
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Floats, Ints


@dataclass(frozen=True, slots=True)
class DeviceSamples:
    """`Samples` whose ids have not left the device."""

    ids: Tensor  # [rows] int64: the next step's inputs
    possible: Tensor  # [rows] bool
    logprobs: Floats  # [rows]
    top_ids: Ints  # [sum of top_n]
    top_logprobs: Floats  # [sum of top_n]

    def on_host(self) -> Samples:
        """Waits for the device."""
        ids, possible = self.ids.cpu().numpy(), self.possible.cpu().numpy()
        return Samples(ids, possible, self.logprobs, self.top_ids, self.top_logprobs)


def sample_with_torch(logits: Tensor, rows: Ints, indices: Ints, state: SamplingState) -> DeviceSamples:
    """Sample one token a row, and add it to the row's history. Overwrites `logits` [rows, vocab_size] float32.

    indices [rows]: the place of the new token in its row's answer. A row's result depends on its own logits,
    parameters, history, seed and index only. Waits for the device where a row penalises or wants a report.
    """
    asking = state.logprobs[rows] | (state.top_n[rows] > 0)
    raw = raw_logprobs(logits, asking)
    edit_logits(logits, rows, state)
    ids, possible = choose(logits, rows, indices, state)
    penalized = np.flatnonzero(state.history.lengths[rows])
    if len(penalized):
        state.history.count(rows[penalized], ids.cpu().numpy()[penalized])
    return DeviceSamples(ids, possible, of_chosen(raw, ids, len(rows)), *most_likely(raw, state.top_n[rows]))
