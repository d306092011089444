"""What a request changes about its raw logits before anything is chosen: bias, then penalties. In place."""

import numpy as np
import torch
from torch import Tensor

from headrace_server.sampling.state import SamplingState
from headrace_server.step import Ints


def edit_logits(logits: Tensor, rows: Ints, state: SamplingState) -> None:
    """logits [rows, vocab_size] float32, of these rows in this order. Touches only rows that ask for it."""
    biased = np.flatnonzero(state.biases.lengths[rows])
    if len(biased):
        ids, values = (torch.from_numpy(part).to(logits.device) for part in state.biases.of(rows[biased]))
        add_biases(logits, biased, ids.long(), values)
    penalized = np.flatnonzero(state.history.lengths[rows])
    if len(penalized):
        _penalize(logits, penalized, rows[penalized], state)


def add_biases(logits: Tensor, places: Ints, ids: Tensor, values: Tensor) -> None:
    """Add values [places, longest] to tokens ids [places, longest] of logits[places]. One named twice gets both."""
    index = torch.from_numpy(places).to(logits.device)[:, None].expand_as(ids)
    logits.index_put_((index, ids), values, accumulate=True)


def _penalize(logits: Tensor, places: Ints, rows: Ints, state: SamplingState) -> None:
    def column(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values[rows])[:, None].to(logits.device)

    tokens, counts = (torch.from_numpy(part).to(logits.device).long() for part in state.history.of(rows))
    index = torch.from_numpy(places).to(logits.device)
    edited = logits[index]
    penalize_repetition(edited, tokens, column(state.repetition_penalty))
    penalize_occurrence(edited, tokens, counts, column(state.frequency_penalty), column(state.presence_penalty))
    logits[index] = edited


def penalize_repetition(logits: Tensor, tokens: Tensor, penalty: Tensor) -> None:
    """Divide positive and multiply negative logits of every token in `tokens` by the row's penalty, once.

    logits [rows, vocab_size]; tokens [rows, length] int64, repeats allowed; penalty [rows, 1]
    """
    before = logits.gather(1, tokens)
    logits.scatter_(1, tokens, torch.where(before < 0, before * penalty, before / penalty))


def penalize_occurrence(logits: Tensor, tokens: Tensor, counts: Tensor, frequency: Tensor, presence: Tensor) -> None:
    """Subtract `frequency` for every occurrence in the answer, and `presence` once if there is any.

    logits [rows, vocab_size]; tokens, counts [rows, length], repeats of a token with a count of 0 allowed;
    frequency, presence [rows, 1]
    """
    logits.scatter_add_(1, tokens, -(counts * frequency + (counts > 0) * presence))
