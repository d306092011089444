"""The gate of a SwiGLU feed-forward layer."""

from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, ArgumentError, dense, expect
from headrace_kernels.silu_and_mul import cpu, reference


def silu_and_mul(gate_up: Tensor, *, backend: Backend | None = None) -> Tensor:
    """Multiply the second half of each row by SiLU of the first.

    gate_up  [num_tokens, 2 * size]; any stride between tokens
    returns  [num_tokens, size] in gate_up's dtype, contiguous

        out[t, i] = gate / (1 + exp(-gate)) * up    with gate = gate_up[t, i], up = gate_up[t, size + i]

    in float32, rounded once. [0, 1, 5, 2] becomes [0, 1.4621].
    """
    expect(gate_up, "gate_up", (None, None), FLOATS)
    if gate_up.shape[1] % 2:
        raise ArgumentError(f"gate_up: expected an even second axis, got {gate_up.shape[1]}")
    if choose(backend, gate_up, triton=False) == "cpu":
        return cpu.silu_and_mul(dense(gate_up))
    return reference.silu_and_mul(gate_up)
