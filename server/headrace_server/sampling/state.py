"""What sampling knows of every row between steps: parameters as columns, so that a step selects rows at once."""

import numpy as np
import torch

from headrace_server.sampling.history import TokenHistory
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import Ints


class SamplingState:
    """One column per parameter, one entry per row. A row's entries hold from one `admit` to the next."""

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        def column(dtype: type) -> np.ndarray:
            return np.zeros(max_rows, dtype)

        self.temperature = column(np.float32)
        self.top_k = column(np.int64)  # vocab_size: all
        self.top_p = column(np.float32)
        self.typical_p = column(np.float32)
        self.min_p = column(np.float32)
        self.repetition_penalty = column(np.float32)
        self.frequency_penalty = column(np.float32)
        self.presence_penalty = column(np.float32)
        self.seed = column(np.int64)
        self.logprobs = column(np.bool_)
        self.top_n = column(np.int64)
        self.prompt_logprobs = column(np.bool_)
        self.penalized = column(np.bool_)
        self.biased = column(np.bool_)
        self.biases: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # row → (ids, values)
        self.history = TokenHistory(max_rows, device)
        self._vocab_size = vocab_size
        self._device = device

    def admit(self, row: int, parameters: SamplingParameters, token_ids: Ints, num_generated: int) -> None:
        """A request takes the row; its parameters have been checked."""
        self.release(row)
        self.report(row, parameters)
        self.temperature[row] = 0.0 if parameters.greedy else parameters.temperature
        self.top_k[row] = min(parameters.top_k or self._vocab_size, self._vocab_size)
        self.top_p[row] = parameters.top_p
        self.typical_p[row] = parameters.typical_p
        self.min_p[row] = parameters.min_p
        self.repetition_penalty[row] = parameters.applied_repetition_penalty
        self.frequency_penalty[row] = parameters.frequency_penalty
        self.presence_penalty[row] = parameters.presence_penalty
        self.seed[row] = parameters.seed
        self.penalized[row] = parameters.penalized
        self.biased[row] = len(parameters.bias_ids) > 0
        if parameters.penalized:
            self.history.start(row, token_ids, num_generated)
        if self.biased[row]:
            ids, values = torch.from_numpy(parameters.bias_ids), torch.tensor(parameters.bias_values)
            self.biases[row] = (ids.to(self._device), values.to(self._device))

    def report(self, row: int, parameters: SamplingParameters) -> None:
        """Remember only what the row's results must hold: enough for one that failed at admission."""
        self.logprobs[row] = parameters.logprobs
        self.top_n[row] = min(parameters.top_n, self._vocab_size)
        self.prompt_logprobs[row] = parameters.prompt_logprobs

    def release(self, row: int) -> None:
        """The row's holder is gone."""
        self.biases.pop(row, None)
        self.penalized[row] = self.biased[row] = False
