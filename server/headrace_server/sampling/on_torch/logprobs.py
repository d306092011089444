"""Log-probabilities of the raw logits, for the rows that asked."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headrace_server.step import Floats, Ints


@dataclass(frozen=True, slots=True)
class RawLogprobs:
    """Of some rows of a step, taken before anything edits their logits."""

    places: Ints  # [asking] which rows of the step
    values: Tensor  # [asking, vocab_size] float32


def raw_logprobs(logits: Tensor, asking: np.ndarray) -> RawLogprobs | None:
    """logits [rows, vocab_size]; asking [rows] bool. None if nobody asks."""
    places = np.flatnonzero(asking)
    if not len(places):
        return None
    index = torch.from_numpy(places).to(logits.device)
    return RawLogprobs(places, logits[index].log_softmax(dim=-1))


def of_chosen(raw: RawLogprobs | None, ids: Tensor, num_rows: int) -> Floats:
    """[num_rows] the log-probability of each row's chosen token; NaN for rows that did not ask."""
    out = np.full(num_rows, np.nan, np.float32)
    if raw is not None:
        chosen = ids[torch.from_numpy(raw.places).to(ids.device)]
        out[raw.places] = raw.values.gather(1, chosen[:, None])[:, 0].cpu().numpy()
    return out


def most_likely(raw: RawLogprobs | None, top_n: Ints) -> tuple[Ints, Floats]:
    """Ids and log-probabilities of each row's top_n[row] likeliest tokens, one row after the other, likeliest first.

    Rows that want equally many are served together, so a row's answer does not depend on what others want.
    """
    total = int(top_n.sum())
    ids, values = np.zeros(total, np.int64), np.full(total, np.nan, np.float32)
    starts = np.cumsum(top_n) - top_n
    for wanted in np.unique(top_n[top_n > 0]).tolist():
        assert raw is not None, "a row that wants its likeliest tokens asks for log-probabilities"
        among = np.flatnonzero(top_n[raw.places] == wanted)
        best = raw.values[torch.from_numpy(among).to(raw.values.device)].topk(wanted, dim=-1)
        where = starts[raw.places[among]][:, None] + np.arange(wanted)
        ids[where], values[where] = best.indices.cpu().numpy(), best.values.cpu().numpy()
    return ids, values
