"""Root-mean-square normalisation: alone, fused with the residual addition before it, and with quantizing after it."""

import torch
from torch import Tensor

from headrace_kernels.backends import DTYPES, Backend, choose
from headrace_kernels.checks import FLOATS, dense, expect
from headrace_kernels.quantize_rows import QuantizedRows, check_type, quantize_rows
from headrace_kernels.rms_norm import cpu, reference


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, backend: Backend | None = None) -> Tensor:
    """Normalise the last axis to root mean square one, then scale it.

    x        [num_tokens, size] or, to normalise each head, [num_tokens, num_heads, size]; any stride between tokens
    weight   [size]
    eps      added to the mean of squares
    returns  x's shape in weight's dtype, contiguous

        out[..., i] = x[..., i] / sqrt(mean_i(x[..., i]^2) + eps) * weight[i]

    in float32, rounded once at the end. x may be float32 while weight is bfloat16.

    [3, 4] with weight [1, 2] and eps 0: the mean of squares is 12.5, so the result is [0.8485, 2.2627].
    """
    size = weight.shape[-1]
    expect(weight, "weight", (size,), FLOATS, x)
    expect(x, "x", (*x.shape[:-1], size), FLOATS)
    chosen = choose(backend, x, cpu=_cpu_supports(x, weight))
    if chosen == "cpu":
        return cpu.rms_norm(dense(x), weight.contiguous(), eps)
    if chosen == "triton":
        from headrace_kernels.rms_norm import triton

        return triton.rms_norm(dense(x), weight, eps)
    return reference.rms_norm(x, weight, eps)


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, *, backend: Backend | None = None
) -> tuple[Tensor, Tensor]:
    """Add a layer's output to the residual stream and normalise the sum for the next layer.

    x         [num_tokens, size]
    residual  [num_tokens, size], in x's dtype or float32
    weight    [size]
    returns   (normed, sum): `normed` in weight's dtype, `sum` in residual's; both [num_tokens, size], contiguous

        sum = residual + x                in float32, rounded to residual's dtype
        normed = rms_norm(sum, weight, eps)

    `normed` is of the rounded sum, so it equals the two operations done apart, bit for bit. Neither argument changes.

    x [1, 1] and residual [2, 3] give the sum [3, 4], and normed is what `rms_norm` says of [3, 4].
    """
    _check_sum(x, residual, weight)
    chosen = choose(backend, x, cpu=_cpu_supports(x, weight) and _cpu_supports(residual, weight))
    if chosen == "cpu":
        return cpu.add_rms_norm(dense(x), dense(residual), weight.contiguous(), eps)
    if chosen == "triton":
        from headrace_kernels.rms_norm import triton

        return triton.add_rms_norm(dense(x), dense(residual), weight, eps)
    return reference.add_rms_norm(x, residual, weight, eps)


def add_rms_norm_quantized(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, dtype: torch.dtype, *, backend: Backend | None = None
) -> tuple[QuantizedRows, Tensor]:
    """`add_rms_norm`, and its `normed` in 8 bits, for the product that follows.

    dtype    int8 or float8_e4m3fn
    returns  (quantize_rows(normed, dtype), sum), bit for bit as the operations done apart
    """
    _check_sum(x, residual, weight)
    check_type(dtype)
    if choose(backend, x, cpu=False) == "triton":
        from headrace_kernels.rms_norm import triton

        values, scales, total = triton.add_rms_norm_quantized(dense(x), dense(residual), weight, eps, dtype)
        return QuantizedRows(values, scales), total
    normed, total = reference.add_rms_norm(x, residual, weight, eps)
    return quantize_rows(normed, dtype, backend="reference"), total


def _check_sum(x: Tensor, residual: Tensor, weight: Tensor) -> None:
    size = weight.shape[-1]
    expect(weight, "weight", (size,), FLOATS, x)
    expect(x, "x", (None, size), FLOATS)
    expect(residual, "residual", x.shape, FLOATS, x)


def _cpu_supports(x: Tensor, weight: Tensor) -> bool:
    return x.dtype in DTYPES and weight.dtype in DTYPES
