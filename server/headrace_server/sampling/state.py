"""What sampling knows of every row between steps: parameters as numpy columns, so that a step selects rows at once."""

import numpy as np

from headrace_kernels.sample_tokens import Columns
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import Ints


class SamplingState(Columns):
    """The kernel's columns, and who fills them. A row's entries hold from one `admit` to the next."""

    def __init__(self, max_rows: int, vocab_size: int) -> None:
        super().__init__(max_rows)
        self.prompt_logprobs = np.zeros(max_rows, np.bool_)
        # The arg-max of the row's raw logits is all that anybody wants of them.
        self.plain = np.zeros(max_rows, np.bool_)
        self._vocab_size = vocab_size
        self._changed: set[int] = set()

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
        self.biases.put(row, parameters.bias_ids, parameters.bias_values)
        if parameters.penalized:
            tokens, places = np.unique(token_ids, return_inverse=True)
            in_answer = np.bincount(places[len(places) - num_generated :], minlength=len(tokens))
            self.history.put(row, tokens, in_answer)
        self.plain[row] = parameters.plain

    def report(self, row: int, parameters: SamplingParameters) -> None:
        """Remember only what the row's results must hold: enough for one that failed at admission."""
        self.logprobs[row] = parameters.logprobs
        self.top_n[row] = min(parameters.top_n, self._vocab_size)
        self.prompt_logprobs[row] = parameters.prompt_logprobs

    def release(self, row: int) -> None:
        """The row's holder is gone."""
        self.biases.lengths[row] = self.history.lengths[row] = 0
        self._changed.add(row)

    def changed(self) -> Ints:
        """Rows that were admitted or released since `forget_changed`: for whoever keeps a copy of the columns."""
        return np.array(sorted(self._changed), np.int64)

    def forget_changed(self) -> None:
        """They were copied."""
        self._changed.clear()
