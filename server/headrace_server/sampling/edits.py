"""What a request changes about its raw logits before anything is chosen: bias, then penalties. In place."""

import numpy as np
import torch
from torch import Tensor

from headrace_server.sampling.state import SamplingState
from headrace_server.step import Ints


def edit_logits(logits: Tensor, rows: Ints, state: SamplingState) -> None:
    """logits [rows, vocab_size] float32, of these rows in this order. Touches only rows that ask for it."""
    biased = np.flatnonzero(state.biased[rows])
    if len(biased):
        add_biases(logits, biased, [state.biases[row] for row in rows[biased].tolist()])
    penalized = np.flatnonzero(state.penalized[rows])
    if len(penalized):
        _penalize(logits, penalized, rows[penalized], state)


def add_biases(logits: Tensor, places: Ints, biases: list[tuple[Tensor, Tensor]]) -> None:
    """Add biases[i] = (token ids, values) to logits[places[i]]. A token named twice gets both values."""
    lengths = torch.tensor([len(ids) for ids, _ in biases], device=logits.device)
    index = torch.from_numpy(places).to(logits.device).repeat_interleave(lengths)
    ids, values = (torch.cat(parts) for parts in zip(*biases, strict=True))
    logits.index_put_((index, ids), values, accumulate=True)


def _penalize(logits: Tensor, places: Ints, rows: Ints, state: SamplingState) -> None:
    def column(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values[rows])[:, None].to(logits.device)

    tokens, generated, fresh = state.history.of(rows)
    index = torch.from_numpy(places).to(logits.device)
    edited = logits[index]
    penalize_repetition(edited, tokens, column(state.repetition_penalty))
    penalize_occurrence(
        edited, tokens, generated, fresh, column(state.frequency_penalty), column(state.presence_penalty)
    )
    logits[index] = edited


def penalize_repetition(logits: Tensor, tokens: Tensor, penalty: Tensor) -> None:
    """Divide positive and multiply negative logits of every token in `tokens` by the row's penalty, once.

    logits [rows, vocab_size]; tokens [rows, length] int64, repeats allowed; penalty [rows, 1]
    """
    before = logits.gather(1, tokens)
    logits.scatter_(1, tokens, torch.where(before < 0, before * penalty, before / penalty))


def penalize_occurrence(
    logits: Tensor, tokens: Tensor, generated: Tensor, fresh: Tensor, frequency: Tensor, presence: Tensor
) -> None:
    """Subtract `frequency` for every occurrence in the answer, and `presence` once for the first.

    logits [rows, vocab_size]; tokens, generated, fresh [rows, length] as `TokenHistory.of` gives them;
    frequency, presence [rows, 1]
    """
    logits.scatter_add_(1, tokens, -(generated * frequency + fresh * presence))
