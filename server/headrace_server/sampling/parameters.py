"""How one row turns logits into tokens, resolved and checked."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

GREEDY_BELOW = 1e-5
"""A temperature below it is greedy: the likeliest token has all of the mass then, and logits ÷ temperature would leave
float32's range long before 0 is reached."""

PENALTY_RANGE = (1e-10, 1e10)
"""A repetition penalty outside of it counts as its nearest end: a larger effect cannot be seen, and logits ÷ penalty
would leave float32's range."""


def _no_ids() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


def _no_values() -> NDArray[np.float32]:
    return np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class SamplingParameters:
    """One row's parameters. Every default is 'off'; proto/shard.proto says what each means."""

    temperature: float = 0.0  # 0: greedy
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    typical_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = 0  # any 64-bit value
    bias_ids: NDArray[np.int64] = field(default_factory=_no_ids)  # [biased]
    bias_values: NDArray[np.float32] = field(default_factory=_no_values)  # [biased]
    logprobs: bool = False
    top_n: int = 0
    prompt_logprobs: bool = False

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    @property
    def applied_repetition_penalty(self) -> float:
        """As it is computed with."""
        lowest, highest = PENALTY_RANGE
        return min(max(self.repetition_penalty, lowest), highest)

    @property
    def penalized(self) -> bool:
        """The row needs to know which tokens occurred."""
        return self.repetition_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0

    @property
    def plain(self) -> bool:
        """The row takes the arg-max of its raw logits and reports nothing about them."""
        asks = self.logprobs or self.top_n > 0
        return self.greedy and not (asks or self.penalized or len(self.bias_ids) > 0)

    def problem(self, vocab_size: int) -> str | None:
        """A sentence about the first value that cannot be used, or None."""
        checks = (
            (0 <= self.temperature < math.inf, f"temperature {self.temperature} must be finite and at least 0"),
            (0 < self.top_p <= 1, f"top_p {self.top_p} must be in (0, 1]"),
            (0 < self.typical_p <= 1, f"typical_p {self.typical_p} must be in (0, 1]"),
            (0 <= self.min_p <= 1, f"min_p {self.min_p} must be in [0, 1]"),
            (
                0 < self.repetition_penalty < math.inf,
                f"repetition_penalty {self.repetition_penalty} must be finite and above 0",
            ),
            (math.isfinite(self.frequency_penalty), f"frequency_penalty {self.frequency_penalty} must be finite"),
            (math.isfinite(self.presence_penalty), f"presence_penalty {self.presence_penalty} must be finite"),
            (self.top_n <= vocab_size, f"top_n {self.top_n} must not exceed the vocabulary of {vocab_size}"),
            (
                len(self.bias_ids) == len(self.bias_values),
                f"logit bias has {len(self.bias_ids)} ids and {len(self.bias_values)} values",
            ),
            (
                bool((self.bias_ids < vocab_size).all()),
                f"logit bias names a token outside the vocabulary of {vocab_size}",
            ),
            (bool((self.bias_values < math.inf).all()), "logit bias holds a value that is not below infinity"),
        )
        return next((sentence for holds, sentence in checks if not holds), None)
