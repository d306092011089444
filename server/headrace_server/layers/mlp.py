"""The gated feed-forward layer (SwiGLU)."""

from torch import Tensor

from headrace_kernels.ops import silu_and_mul
from headrace_server.quantization.method import LinearLayer


class GatedMlp:
    """x → down(silu(gate(x)) · up(x))."""

    def __init__(self, gate_up: LinearLayer, down: LinearLayer) -> None:
        self._gate_up = gate_up
        self._down = down

    def __call__(self, x: Tensor) -> Tensor:
        return self._down(silu_and_mul(self._gate_up(x)))
