"""What the rows of a step sampled, while it is on the device."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from headrace_kernels.sample_tokens.columns import Ints
from headrace_kernels.sample_tokens.samples import Samples


@dataclass(frozen=True)
class DeviceSamples:
    """`Samples` of which only the places that report have log-probabilities."""

    ids: Tensor  # [places] int64
    possible: Tensor  # [places] int32, 0 or 1
    logprobs: Tensor  # [reported] float32
    top_ids: Tensor  # [sum of top_n] int32
    top_logprobs: Tensor  # [sum of top_n] float32
    reported: Ints  # which places want log-probabilities

    @property
    def tensors(self) -> list[Tensor]:
        """What the host wants of them."""
        reports = [self.logprobs, self.top_ids, self.top_logprobs] if len(self.reported) else []
        return [self.ids, self.possible, *reports]

    def on_host(self, arrays: Sequence[NDArray]) -> Samples:
        """Of copies of `tensors`."""
        ids, possible, *reports = arrays
        logprobs = np.full(len(ids), np.nan, np.float32)
        if not reports:
            return Samples(ids, possible != 0, logprobs, np.empty(0, np.int64), np.empty(0, np.float32))
        logprobs[self.reported], top_ids, top_logprobs = reports
        return Samples(ids, possible != 0, logprobs, top_ids.astype(np.int64), top_logprobs)

    def fetch(self) -> Samples:
        """Waits for the device."""
        return self.on_host([tensor.cpu().numpy() for tensor in self.tensors])
