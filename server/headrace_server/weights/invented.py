"""Weights that nobody trained: random numbers of the right shapes, for measuring, or shapes alone, for compiling."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headrace_server.weights.safetensors import FLOATS, Checkpoint
from headrace_server.weights.slice import Axis, as_slice

TYPES = {"I32": torch.int32, "I8": torch.int8, "F8_E4M3": torch.float8_e4m3fn}
"""What is taken unchanged, by safetensors' name."""

OPTIONAL = (".g_idx", ".weight_g_idx", ".k_scale", ".v_scale", ".kv_scale", ".output_scale")
"""Ends of names of tensors that no model has to have."""

SPREAD = 0.02
"""Standard deviation, as models are initialised: activations keep a size that bfloat16 can tell apart."""


class InventedCheckpoint(Checkpoint):
    """Has whatever a model asks of it, on its device; on "meta" without numbers."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self._device = device
        self._generator = None if device.type == "meta" else torch.Generator(device).manual_seed(1)

    def has(self, name: str) -> bool:
        """Nothing that a checkpoint may also lack: inputs are in the order of their numbers, keys and values have no
        scales."""
        return not name.endswith(OPTIONAL)

    def shape_like(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def ignore(self, name: str) -> None:
        pass

    def ignore_modules(self, *names: str) -> None:
        pass

    def finish(self) -> None:
        pass

    def take_unchanged(self, name: str, *axes: Axis, dtypes: Sequence[str] = FLOATS) -> Tensor:
        """Integers have all bits at random."""
        shape = [len(as_slice(axis)) for axis in axes]
        if dtypes is FLOATS:
            return self._random(shape)
        dtype = TYPES[dtypes[0]]
        if dtype.is_floating_point:
            return self._random(shape).to(dtype)
        if self._generator is None:
            return torch.empty(shape, dtype=dtype, device=self._device)
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        return torch.randint(least, most + 1, shape, dtype=dtype, device=self._device, generator=self._generator)

    def take_stacked(self, names: Sequence[str], heights: Sequence[Axis], *rest: Axis) -> Tensor:
        height = sum(len(as_slice(axis)) for axis in heights)
        return self._random([height, *(len(as_slice(axis)) for axis in rest)])

    def _random(self, shape: Sequence[int]) -> Tensor:
        tensor = torch.empty(shape, dtype=self.dtype, device=self._device)
        return tensor if self._generator is None else tensor.normal_(0, SPREAD, generator=self._generator)
