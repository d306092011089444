"""A checkpoint's tensors for torch.

Peak memory is this rank's part of the model in its own dtype plus that of the largest tensor of the file. Tensors are
always copied, so a file that is replaced while the shard runs does no harm.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from headrace_server.weights.files import ADVICE, FLOATS, CheckpointFiles, StoredTensor
from headrace_server.weights.slice import Axis, Slice, as_slice

__all__ = ["ADVICE", "Checkpoint"]

_TYPES = {
    "F32": (np.int32, torch.float32),
    "BF16": (np.int16, torch.bfloat16),
    "F16": (np.int16, torch.float16),
    "F64": (np.int64, torch.float64),
    "I32": (np.int32, torch.int32),
    "I8": (np.int8, torch.int8),
    "F8_E4M3": (np.int8, torch.float8_e4m3fn),
}
"""By safetensors' name: integers of the same size, which numpy can cut, and what they mean."""


class Checkpoint(CheckpointFiles):
    """The tensors of a model directory in one dtype on one device."""

    def __init__(
        self, model_dir: Path, dtype: torch.dtype, device: torch.device, sizes: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(model_dir, sizes)
        self.dtype = dtype
        self._device = device

    def take(self, name: str, *axes: Axis) -> Tensor:
        """The tensor, or the slices of its axes, copied to the model's dtype and device. Its shape must be as said."""
        return self.take_stacked([name], [axes[0]], *axes[1:])

    def take_unchanged(self, name: str, *axes: Axis, dtypes: Sequence[str] = FLOATS) -> Tensor:
        """The tensor, or the slices of its axes, in the type it is stored in, one of `dtypes`; on the device."""
        cuts = [as_slice(axis) for axis in axes]
        tensor = self.stored(name, tuple(axis.size for axis in cuts), dtypes)
        return _mapped(tensor, cuts).to(self._device)

    def take_stacked(self, names: Sequence[str], heights: Sequence[Axis], *rest: Axis) -> Tensor:
        """Several tensors as one, stacked along their first axis: of names[i] the part [heights[i], *rest].

        Only the parts are read from the file, as far as its pages allow.
        """
        cuts = [[as_slice(axis) for axis in (height, *rest)] for height in heights]
        # All are looked up first: sizes that do not fit the file must not be allocated.
        tensors = [self.stored(name, tuple(axis.size for axis in axes)) for name, axes in zip(names, cuts, strict=True)]
        lengths = [len(axes[0]) for axes in cuts]
        stacked = torch.empty(
            sum(lengths), *(len(as_slice(axis)) for axis in rest), dtype=self.dtype, device=self._device
        )
        for part, tensor, axes in zip(stacked.split(lengths), tensors, cuts, strict=True):
            part.copy_(_mapped(tensor, axes))
        return stacked


def _mapped(tensor: StoredTensor, axes: Sequence[Slice]) -> Tensor:
    integers, dtype = _TYPES[tensor.dtype]
    values = tensor.data.view(integers).reshape(tensor.shape)[tuple(slice(axis.begin, axis.end) for axis in axes)]
    # from_numpy wants writable memory for a tensor that could be written to; this one is only copied from.
    return torch.from_numpy(np.array(values)).view(dtype)
