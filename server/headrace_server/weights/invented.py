"""Weights that nobody trained: random numbers of the right shapes, for measuring, or shapes alone, for compiling."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headrace_server.weights.safetensors import FLOATS, Checkpoint
from headrace_server.weights.slice import Axis, as_slice

SPREAD = 0.02
"""Standard deviation, as models are initialised: activations keep a size that bfloat16 can tell apart."""


class InventedCheckpoint(Checkpoint):
    """Has whatever a model asks of it, on its device; on "meta" without numbers."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self._device = device
        self._generator = None if device.type == "meta" else torch.Generator(device).manual_seed(1)

    def has(self, name: str) -> bool:
        """GPTQ's order of inputs is that of their numbers, so no tensor says it."""
        return not name.endswith(".g_idx")

    def ignore(self, name: str) -> None:
        pass

    def ignore_modules(self, *names: str) -> None:
        pass

    def finish(self) -> None:
        pass

    def take_unchanged(self, name: str, *axes: Axis, dtypes: Sequence[str] = FLOATS) -> Tensor:
        """Packed integers have all bits at random."""
        shape = [len(as_slice(axis)) for axis in axes]
        if dtypes != ("I32",):
            return self._random(shape)
        if self._generator is None:
            return torch.empty(shape, dtype=torch.int32, device=self._device)
        return torch.randint(-(2**31), 2**31, shape, dtype=torch.int32, device=self._device, generator=self._generator)

    def take_stacked(self, names: Sequence[str], heights: Sequence[Axis], *rest: Axis) -> Tensor:
        height = sum(len(as_slice(axis)) for axis in heights)
        return self._random([height, *(len(as_slice(axis)) for axis in rest)])

    def _random(self, shape: Sequence[int]) -> Tensor:
        tensor = torch.empty(shape, dtype=self.dtype, device=self._device)
        return tensor if self._generator is None else tensor.normal_(0, SPREAD, generator=self._generator)
