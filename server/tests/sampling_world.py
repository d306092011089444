"""The host's samplers under one interface, so that each test of sampling runs with both."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from headrace_kernels import native
from headrace_kernels.sample_tokens import Columns, sample_tokens
from headrace_server.sampling.on_cpu import sample_on_cpu
from headrace_server.sampling.samples import Samples
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Ints

Sample = Callable[[Tensor, Ints, Ints, SamplingState], Samples]


def _with_cpp(logits: Tensor, rows: Ints, indices: Ints, state: SamplingState) -> Samples:
    assert native.available()
    return sample_on_cpu(logits.numpy(), rows, indices, state)


def _with_numpy(logits: Tensor, rows: Ints, indices: Ints, state: SamplingState) -> Samples:
    return sample_tokens(logits.numpy(), rows, indices, state, backend="reference")


SAMPLERS: dict[str, Sample] = {"cpp": _with_cpp, "numpy": _with_numpy}


class KernelStages:
    """Filters and penalties of `sample_tokens`: each changes logits [rows, vocab_size] in place."""

    def __init__(self, backend: str | None) -> None:
        self._backend = backend

    def keep_top_k(self, scores: Tensor, k: Tensor) -> None:
        self._filter(scores, "top_k", k)

    def keep_top_p(self, scores: Tensor, mass: Tensor) -> None:
        self._filter(scores, "top_p", mass)

    def keep_typical(self, scores: Tensor, mass: Tensor) -> None:
        self._filter(scores, "typical_p", mass)

    def keep_min_p(self, scores: Tensor, share: Tensor) -> None:
        self._filter(scores, "min_p", share)

    def add_biases(self, logits: Tensor, places: Ints, ids: Tensor, values: Tensor) -> None:
        columns = _all_off(*logits.shape)
        for place, its_ids, its_values in zip(places.tolist(), ids.numpy(), values.numpy(), strict=True):
            columns.biases.put(place, its_ids, its_values)
        self._run(logits, columns)

    def penalize_repetition(self, logits: Tensor, tokens: Tensor, penalty: Tensor) -> None:
        columns = _all_off(*logits.shape)
        columns.repetition_penalty[:] = penalty[:, 0].numpy()
        for row, its in enumerate(tokens.numpy()):
            distinct = np.unique(its)
            columns.history.put(row, distinct, np.zeros(len(distinct)))
        self._run(logits, columns)

    def penalize_occurrence(
        self, logits: Tensor, tokens: Tensor, counts: Tensor, frequency: Tensor, presence: Tensor
    ) -> None:
        columns = _all_off(*logits.shape)
        columns.frequency_penalty[:] = frequency[:, 0].numpy()
        columns.presence_penalty[:] = presence[:, 0].numpy()
        for row, (its, their_counts) in enumerate(zip(tokens.numpy(), counts.numpy(), strict=True)):
            columns.history.put(row, its, their_counts)
        self._run(logits, columns)

    def _filter(self, scores: Tensor, name: str, setting: Tensor) -> None:
        columns = _all_off(*scores.shape)
        columns.temperature[:] = 1.0
        getattr(columns, name)[:] = setting[:, 0].numpy()
        kept = np.zeros(scores.shape, np.bool_)
        self._run(scores.clone(), columns, kept)
        scores.masked_fill_(~torch.from_numpy(kept), float("-inf"))

    def _run(self, logits: Tensor, columns: Columns, kept: np.ndarray | None = None) -> None:
        rows = np.arange(len(logits))
        sample_tokens(logits.numpy(), rows, rows, columns, kept=kept, backend=self._backend)


STAGES = {"cpp": KernelStages(None), "numpy": KernelStages("reference")}


def _all_off(rows: int, vocab_size: int) -> Columns:
    columns = Columns(rows)
    columns.top_k[:] = vocab_size
    for column in (columns.typical_p, columns.top_p, columns.repetition_penalty):
        column[:] = 1.0
    return columns
