"""Linear layers, named by how they are split over ranks.

A column-parallel layer's ranks hold slices of its output features, so nothing is exchanged; a row-parallel layer's
ranks hold slices of its input features and add their results up. A model is a sequence of such pairs, and says which is
which. With one rank all of them are whole.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from headrace_kernels.quantize_rows import QuantizedRows
from headrace_server.distributed.collective import Collective
from headrace_server.quantization.method import LinearLayer, QuantizationMethod
from headrace_server.quantization.none import UnquantizedLinear
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice


class SummedLinear:
    """A linear layer whose result is the sum of what all ranks have."""

    def __init__(self, part: LinearLayer, collective: Collective) -> None:
        self._part = part
        self._collective = collective

    @property
    def rows_dtype(self) -> torch.dtype | None:
        return self._part.rows_dtype

    def __call__(self, x: Tensor | QuantizedRows) -> Tensor:
        return self._collective.all_reduce(self._part(x))


class LinearFactory:
    """Makes a model's linear layers from one checkpoint with one quantization method."""

    def __init__(self, checkpoint: Checkpoint, method: QuantizationMethod, collective: Collective) -> None:
        self._checkpoint = checkpoint
        self._method = method
        self._collective = collective

    def of_weight(self, weight: Tensor) -> LinearLayer:
        """A plain weight [out_features, in_features] that was taken already, in the type of the checkpoint."""
        return UnquantizedLinear(weight, None, self._method.batch_invariant)

    def column_parallel(
        self, names: Sequence[str], out_features: Sequence[Slice], in_features: int, bias: bool = False
    ) -> LinearLayer:
        """Modules that read the same input, fused: one product instead of len(names)."""
        return self._method.linear(self._checkpoint, names, out_features, Slice.whole(in_features), bias)

    def row_parallel(self, name: str, out_features: int, in_features: Slice, bias: bool = False) -> LinearLayer:
        """The module that brings a column-parallel one's output back to the residual stream."""
        if bias and self._collective.rank > 0:
            self._checkpoint.ignore(f"{name}.bias")  # in the sum once: rank 0's
        mine = bias and self._collective.rank == 0
        part = self._method.linear(self._checkpoint, [name], [Slice.whole(out_features)], in_features, mine)
        return part if self._collective.world_size == 1 else SummedLinear(part, self._collective)
