"""Edited logits → token ids: arg-max for greedy rows, filters and Gumbel noise for the others."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from headrace_kernels.ops import gumbel_noise
from headrace_server.sampling.on_torch.filters import keep_min_p, keep_top_k, keep_top_p, keep_typical
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Ints


def choose(logits: Tensor, rows: Ints, indices: Ints, state: SamplingState) -> tuple[Tensor, Tensor]:
    """(token ids [rows] int64, whether each could be chosen [rows] bool); logits [rows, vocab_size] float32.

    indices [rows]: the place of each new token in its answer, which with the seed makes its noise. A row of NaN, or
    of nothing but −∞, cannot be chosen from.
    """
    random = np.flatnonzero(state.temperature[rows] > 0)
    if len(random) == len(rows):
        return _best(_random_scores(logits, rows, indices, state))
    ids, possible = _best(logits)
    if len(random):
        index = torch.from_numpy(random).to(logits.device)
        scores = _random_scores(logits[index], rows[random], indices[random], state)
        ids[index], possible[index] = _best(scores)
    return ids, possible


def _best(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Arg-max, the lowest id among equals; NaN counts as the largest, so the largest value tells of any."""
    value, ids = scores.max(dim=-1)
    return ids, value.isfinite()


def _random_scores(logits: Tensor, rows: Ints, indices: Ints, state: SamplingState) -> Tensor:
    """Temperature, filters, then noise whose arg-max is a sample. May overwrite `logits`."""

    def tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(logits.device)

    scores = logits.div_(tensor(state.temperature[rows])[:, None])
    for keep, setting, on in (
        (keep_top_k, state.top_k[rows], state.top_k[rows] < logits.shape[1]),
        (keep_typical, state.typical_p[rows], state.typical_p[rows] < 1),
        (keep_top_p, state.top_p[rows], state.top_p[rows] < 1),
        (keep_min_p, state.min_p[rows], state.min_p[rows] > 0),
    ):
        _on_rows(keep, scores, tensor(setting)[:, None], on)
    return scores.add_(gumbel_noise(tensor(state.seed[rows]), tensor(indices), logits.shape[1]))


def _on_rows(keep: Callable[[Tensor, Tensor], None], scores: Tensor, setting: Tensor, on: np.ndarray) -> None:
    """Apply a filter to the rows where it is on, and to no other."""
    if on.all():
        keep(scores, setting)
    elif on.any():
        index = torch.from_numpy(np.flatnonzero(on)).to(scores.device)
        some = scores[index]
        keep(some, setting[index])
        scores[index] = some
