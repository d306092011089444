"""The definition of `silu_and_mul` in plain torch."""

from torch import Tensor


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """See `headrace_kernels.silu_and_mul`."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (gate / (1 + (-gate).exp()) * up).to(gate_up.dtype)
