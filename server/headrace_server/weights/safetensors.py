"""A checkpoint's tensors for torch.

Peak memory is the model in its own dtype plus the largest tensor of the file. Tensors are always copied, so a file
that is replaced while the shard runs does no harm.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from headrace_server.weights.files import ADVICE, CheckpointFiles, StoredTensor

__all__ = ["ADVICE", "Checkpoint"]

_TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "F64": torch.float64}


class Checkpoint(CheckpointFiles):
    """The tensors of a model directory in one dtype on one device."""

    def __init__(
        self, model_dir: Path, dtype: torch.dtype, device: torch.device, sizes: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(model_dir, sizes)
        self._dtype = dtype
        self._device = device

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor, copied to the model's dtype and device; its shape must be as said."""
        return self.take_stacked([name], [shape[0]], *shape[1:])

    def take_stacked(self, names: Sequence[str], heights: Sequence[int], *rest: int) -> Tensor:
        """Several tensors as one, stacked along their first axis: names[i] has the shape [heights[i], *rest]."""
        # All are looked up first: sizes that do not fit the file must not be allocated.
        tensors = [self.stored(name, (height, *rest)) for name, height in zip(names, heights, strict=True)]
        stacked = torch.empty(sum(heights), *rest, dtype=self._dtype, device=self._device)
        for part, tensor in zip(stacked.split(list(heights)), tensors, strict=True):
            part.copy_(_mapped(tensor))
        return stacked


def _mapped(tensor: StoredTensor) -> Tensor:
    # frombuffer wants writable memory for a tensor that could be written to; this one is only copied from.
    return torch.from_numpy(tensor.data.copy()).view(_TYPES[tensor.dtype]).view(tensor.shape)
