"""The gated feed-forward layer (SwiGLU)."""

import torch
from torch import Tensor

from headrace_kernels.ops import QuantizedRows, silu_and_mul, silu_and_mul_quantized
from headrace_server.quantization.method import LinearLayer


class GatedMlp:
    """x → down(silu(gate(x)) · up(x))."""

    def __init__(self, gate_up: LinearLayer, down: LinearLayer) -> None:
        self._gate_up = gate_up
        self._down = down

    @property
    def rows_dtype(self) -> torch.dtype | None:
        """What x is rounded to; see `LinearLayer`."""
        return self._gate_up.rows_dtype

    def __call__(self, x: Tensor | QuantizedRows) -> Tensor:
        gate_up = self._gate_up(x)
        if self._down.rows_dtype is None:
            return self._down(silu_and_mul(gate_up))
        return self._down(silu_and_mul_quantized(gate_up, self._down.rows_dtype))
