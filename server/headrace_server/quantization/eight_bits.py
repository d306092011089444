"""`--quantize int8` and `fp8` on a GPU: plain weights are quantized when they are loaded, a scale for each output."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from headrace_kernels.quantize_rows import QuantizedRows, quantize_rows
from headrace_kernels.scaled_matmul import GroupedWeight, scaled_matmul
from headrace_server.quantization.none import Unquantized
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice

DTYPES = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}


class ScaledLinear:
    """x → x @ weight.T + bias."""

    def __init__(
        self,
        weight: QuantizedRows | GroupedWeight,
        bias: Tensor | None,
        rows_dtype: torch.dtype | None,
        dtype: torch.dtype,
        batch_invariant: bool,
    ) -> None:
        self.weight = weight  # [out_features, in_features]
        self.bias = bias  # [out_features]
        self.rows_dtype = rows_dtype
        self._dtype = dtype  # the result's
        self._batch_invariant = batch_invariant

    def __call__(self, x: Tensor | QuantizedRows) -> Tensor:
        if self.rows_dtype is not None and isinstance(x, Tensor):
            x = quantize_rows(x, self.rows_dtype)
        return scaled_matmul(x, self.weight, self.bias, dtype=self._dtype, batch_invariant=self._batch_invariant)


def rows_type(weights: torch.dtype) -> torch.dtype | None:
    """What rows are rounded to before they meet such weights; None where the chip can't multiply two of that type."""
    from headrace_kernels.gpu import chip  # needs Triton

    return None if weights is torch.float8_e4m3fn and chip.capability() < chip.FLOAT8 else weights


@dataclass(frozen=True)
class EightBits:
    """Rows are rounded to 8 bits too where the chip multiplies 8 bits by 8; elsewhere weights are widened."""

    weights: torch.dtype
    rows: torch.dtype | None  # None: as they are
    batch_invariant: bool = False

    @classmethod
    def for_chip(cls, name: str, batch_invariant: bool) -> Self:
        """By --quantize's name for it, for the chip that kernels are launched on or compiled for."""
        return cls(DTYPES[name], rows_type(DTYPES[name]), batch_invariant)

    def linear(
        self,
        checkpoint: Checkpoint,
        names: Sequence[str],
        out_features: Sequence[Slice],
        in_features: Slice,
        bias: bool,
    ) -> ScaledLinear:
        plain = Unquantized(self.batch_invariant).linear(checkpoint, names, out_features, in_features, bias)
        weight = quantize_rows(plain.weight, self.weights)
        return ScaledLinear(weight, plain.bias, self.rows, checkpoint.dtype, self.batch_invariant)
