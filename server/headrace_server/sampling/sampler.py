"""Who samples from logits that are tensors: `on_gpu` by Triton's kernels, `on_host` by C++."""

from collections.abc import Sequence
from typing import Protocol

from numpy.typing import NDArray
from torch import Tensor

from headrace_server.sampling.samples import Samples
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Ints


class Drawn(Protocol):
    """What a step samples, which the device may still be about to do."""

    @property
    def ids(self) -> Tensor:
        """[rows] int64, where the logits are."""
        ...

    @property
    def tensors(self) -> list[Tensor]:
        """What `on_host` wants copies of."""
        ...

    def on_host(self, arrays: Sequence[NDArray]) -> Samples: ...


class Sampler(Protocol):
    """What sampling needs of rows between steps is with it, or in the state."""

    def sample(self, logits: Tensor, rows: Ints, indices: Ints, state: SamplingState, last_token: Tensor) -> Drawn:
        """Sample one token a row, and count it in the row's history. May overwrite `logits`.

        logits      [rows, vocab_size], in the order of rows
        indices     [rows] the place of the new token in its row's answer
        last_token  [more than any row] int64: gets each row's token

        A row's result depends on its own logits, parameters, history, seed and index only.
        """
        ...
