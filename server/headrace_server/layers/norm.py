"""Root-mean-square normalisation, alone and fused with the residual sum before it."""

import torch
from torch import Tensor

from headrace_kernels.ops import QuantizedRows, add_rms_norm, add_rms_norm_quantized


class RmsNorm:
    """x / rms(x) · weight over the last axis, in float32, rounded to the weight's dtype."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight = weight  # [size]
        self.eps = eps

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """(normalised residual + x, residual + x). The residual stream keeps its own dtype, float32."""
        return add_rms_norm(x, residual, self.weight, self.eps)

    def add_for(
        self, rows_dtype: torch.dtype | None, x: Tensor, residual: Tensor
    ) -> tuple[Tensor | QuantizedRows, Tensor]:
        """The same for a linear layer that rounds its rows to `rows_dtype`."""
        if rows_dtype is None:
            return self.add(x, residual)
        return add_rms_norm_quantized(x, residual, self.weight, self.eps, rows_dtype)
