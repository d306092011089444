"""Root-mean-square normalisation, alone and fused with the residual sum before it."""

from torch import Tensor

from headrace_kernels.ops import add_rms_norm, rms_norm


class RmsNorm:
    """x / rms(x) · weight over the last axis, in float32, rounded to the weight's dtype."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight = weight  # [size]
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """(normalised residual + x, residual + x). The residual stream keeps its own dtype, float32."""
        return add_rms_norm(x, residual, self.weight, self.eps)
