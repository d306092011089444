"""Sampling of tensors by C++: where torch computes on a CPU, and on a device without Triton, which then waits for the
host in every step."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_server.sampling.on_cpu import sample_on_cpu
from headrace_server.sampling.samples import Samples
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Ints


@dataclass(frozen=True, slots=True)
class HostSamples:
    """Samples that are there."""

    ids: Tensor  # [rows] int64, where the logits are
    samples: Samples

    @property
    def tensors(self) -> list[Tensor]:
        return []

    def on_host(self, arrays: Sequence[NDArray]) -> Samples:
        return self.samples


class HostSampler:
    """A `Sampler` that keeps nothing: all is in the state."""

    def sample(
        self, logits: Tensor, rows: Ints, indices: Ints, state: SamplingState, last_token: Tensor
    ) -> HostSamples:
        samples = sample_on_cpu(logits.float().contiguous().cpu().numpy(), rows, indices, state)
        ids = torch.from_numpy(samples.ids).to(logits.device)
        last_token[torch.from_numpy(rows).to(logits.device)] = ids
        return HostSamples(ids, samples)
