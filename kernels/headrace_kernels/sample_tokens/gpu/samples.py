"""What the rows of a step sampled, while it is on the device."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from headrace_kernels.gpu.upload import sections
from headrace_kernels.sample_tokens.columns import Ints
from headrace_kernels.sample_tokens.samples import Samples


@dataclass(frozen=True)
class DeviceSamples:
    """`Samples` in one buffer, of which the tensors are parts."""

    packed: Tensor  # int32
    ids: Tensor  # [places] int64
    possible: Tensor  # [places] int32, 0 or 1
    logprobs: Tensor  # [reported] float32
    top_ids: Tensor  # [sum of top_n] int32
    top_logprobs: Tensor  # [sum of top_n] float32
    reported: Ints  # which places want log-probabilities

    def fetch(self) -> "Fetched":
        """Starts the copy to the host; whoever wants the samples waits for it."""
        if self.packed.device.type != "cuda":
            return Fetched(self, self.packed.cpu(), None)
        on_host = torch.empty(len(self.packed), dtype=torch.int32, pin_memory=True)
        on_host.copy_(self.packed, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        return Fetched(self, on_host, copied)


@dataclass(frozen=True)
class Fetched:
    """Samples on their way to the host."""

    samples: DeviceSamples
    _on_host: Tensor
    _copied: torch.cuda.Event | None

    def on_host(self) -> Samples:
        """Waits until the device has sampled them."""
        if self._copied is not None:
            self._copied.synchronize()
        reported, num_places = self.samples.reported, len(self.samples.ids)
        here = empty_samples(self._on_host, num_places, reported, len(self.samples.top_ids))
        logprobs = np.full(num_places, np.nan, np.float32)
        logprobs[reported] = here.logprobs.numpy()
        return Samples(
            here.ids.numpy(),
            here.possible.numpy() != 0,
            logprobs,
            here.top_ids.numpy().astype(np.int64),
            here.top_logprobs.numpy(),
        )


def empty_samples(packed: Tensor, num_places: int, reported: Ints, num_top: int) -> DeviceSamples:
    """The parts of a buffer of `packed_size` words."""
    sizes = _sizes(num_places, len(reported), num_top)
    parts = [packed[start : start + size] for start, size in zip(sections(sizes)[0], sizes, strict=True)]
    return DeviceSamples(
        packed,
        parts[0].view(torch.int64),
        parts[1],
        parts[2].view(torch.float32),
        parts[3],
        parts[4].view(torch.float32),
        reported,
    )


def packed_size(num_places: int, num_reported: int, num_top: int) -> int:
    """In words."""
    return sections(_sizes(num_places, num_reported, num_top))[1]


def _sizes(num_places: int, num_reported: int, num_top: int) -> tuple[int, ...]:
    return (2 * num_places, num_places, num_reported, num_top, num_top)
