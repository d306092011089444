"""Plain weights: one matrix product."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from headrace_kernels.invariant_linear import invariant_linear
from headrace_kernels.quantize_rows import QuantizedRows
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice


class UnquantizedLinear:
    """x → x @ weight.T + bias."""

    rows_dtype: torch.dtype | None = None

    def __init__(self, weight: Tensor, bias: Tensor | None, batch_invariant: bool) -> None:
        self.weight = weight  # [out_features, in_features]
        self.bias = bias  # [out_features]
        self._batch_invariant = batch_invariant

    def __call__(self, x: Tensor | QuantizedRows) -> Tensor:
        assert isinstance(x, Tensor)  # rows_dtype is None
        if self._batch_invariant:
            return invariant_linear(x, self.weight, self.bias, backend="triton")
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Unquantized:
    """The method of checkpoints without `quantization_config`."""

    batch_invariant: bool = False

    def linear(
        self,
        checkpoint: Checkpoint,
        names: Sequence[str],
        out_features: Sequence[Slice],
        in_features: Slice,
        bias: bool,
    ) -> UnquantizedLinear:
        weight = checkpoint.take_stacked([f"{name}.weight" for name in names], out_features, in_features)
        biases = checkpoint.take_stacked([f"{name}.bias" for name in names], out_features) if bias else None
        return UnquantizedLinear(weight, biases, self.batch_invariant)
