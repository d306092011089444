"""Sampling on a GPU: nothing of it waits for the device, so the next step can be launched before this one has ended."""

import torch
from torch import Tensor

from headrace_kernels.sample_tokens.gpu import DeviceColumns, DeviceSamples, sample_on_gpu
from headrace_kernels.sample_tokens.gpu.device_columns import Upload
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Ints


class DeviceSampler:
    """A `Sampler` that keeps rows' parameters and histories on the device.

    The state's own histories stay as they were at admission: which tokens came since, only the device knows.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device, upload: Upload | None = None) -> None:
        """`upload` takes host arrays to the device without waiting; None: it waits."""
        self._columns = DeviceColumns(max_rows, vocab_size, device, upload)

    def sample(
        self, logits: Tensor, rows: Ints, indices: Ints, state: SamplingState, last_token: Tensor
    ) -> DeviceSamples:
        changed = state.changed()
        if len(changed):
            self._columns.put(changed, state)  # if there is no memory for them, the next step tries again
            state.forget_changed()
        return sample_on_gpu(logits, rows, indices, state, self._columns, last_token=last_token)
