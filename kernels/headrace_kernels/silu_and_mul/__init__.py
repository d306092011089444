"""The gate of a SwiGLU feed-forward layer, alone and with quantizing after it."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, ArgumentError, dense, expect
from headrace_kernels.quantize_rows import QuantizedRows, check_type, quantize_rows
from headrace_kernels.silu_and_mul import cpu, reference


def silu_and_mul(gate_up: Tensor, *, backend: Backend | None = None) -> Tensor:
    """Multiply the second half of each row by SiLU of the first.

    gate_up  [num_tokens, 2 * size]; any stride between tokens
    returns  [num_tokens, size] in gate_up's dtype, contiguous

        out[t, i] = gate / (1 + exp(-gate)) * up    with gate = gate_up[t, i], up = gate_up[t, size + i]

    in float32, rounded once. [0, 1, 5, 2] becomes [0, 1.4621].
    """
    _check(gate_up)
    chosen = choose(backend, gate_up)
    if chosen == "cpu":
        return cpu.silu_and_mul(dense(gate_up))
    if chosen == "triton":
        from headrace_kernels.silu_and_mul import triton

        return triton.silu_and_mul(dense(gate_up))
    return reference.silu_and_mul(gate_up)


def silu_and_mul_quantized(gate_up: Tensor, dtype: torch.dtype, *, backend: Backend | None = None) -> QuantizedRows:
    """`silu_and_mul`, and its result in 8 bits, for the product that follows.

    dtype    int8 or float8_e4m3fn
    returns  quantize_rows(silu_and_mul(gate_up), dtype), bit for bit as the two done apart
    """
    _check(gate_up)
    check_type(dtype)
    if choose(backend, gate_up, cpu=False) == "triton":
        from headrace_kernels.silu_and_mul import triton

        return QuantizedRows(*triton.silu_and_mul_quantized(dense(gate_up), dtype))
    return quantize_rows(reference.silu_and_mul(gate_up), dtype, backend="reference")


def _check(gate_up: Tensor) -> None:
    expect(gate_up, "gate_up", (None, None), FLOATS)
    if gate_up.shape[1] % 2:
        raise ArgumentError(f"gate_up: expected an even second axis, got {gate_up.shape[1]}")
