"""Linear layers of 8-bit weights, each output with a scale of its own, on rows of 8 or more bits."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, dense, expect
from headrace_kernels.quantize_rows import LARGEST, QuantizedRows
from headrace_kernels.scaled_matmul import reference


def scaled_matmul(
    x: Tensor | QuantizedRows,
    weight: QuantizedRows,
    bias: Tensor | None = None,
    *,
    dtype: torch.dtype,
    backend: Backend | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    """Multiply rows by 8-bit weights.

    x                values [num_rows, in_features] of the weight's type and scales [num_rows] ("W8A8"), or, where only
                     the weights shall be small ("W8A16"), [num_rows, in_features] in any type that is not quantized
    weight           values [out_features, in_features] int8 or float8_e4m3fn, contiguous, scales [out_features]:
                     `quantize_rows` of a linear layer's weight
    bias             [out_features]
    dtype            the result's
    batch_invariant  a row's bits shall depend on the row only (Triton)
    returns          [num_rows, out_features], contiguous

        out[t, n] = x.scales[t] * weight.scales[n] * sum_k x[t, k] * weight[n, k] + bias[n]

    The sum is exact for int8 rows, in int32, and float32 otherwise; the rest is float32, rounded once.

    Rows [[100, -50]] with scale 0.01, weights [[127, 0]] with scale 0.5: 0.01 * 0.5 * 12700 = [[63.5]].
    """
    values = x.values if isinstance(x, QuantizedRows) else x
    scales = x.scales if isinstance(x, QuantizedRows) else None
    out_features, in_features = weight.values.shape
    expect(weight.values, "weight", (out_features, in_features), tuple(LARGEST), values)
    expect(weight.scales, "weight.scales", (out_features,), torch.float32, values)
    expect(values, "x", (None, in_features), FLOATS if scales is None else weight.values.dtype)
    if scales is not None:
        expect(scales, "x.scales", (len(values),), torch.float32, values)
    if bias is not None:
        expect(bias, "bias", (out_features,), FLOATS, values)
    if choose(backend, values, cpu=False) == "triton":
        from headrace_kernels.scaled_matmul import triton

        operands = dense(values), scales, weight.values.contiguous(), weight.scales, bias
        return triton.scaled_matmul(*operands, dtype, batch_invariant)
    return reference.scaled_matmul(values, scales, weight.values, weight.scales, bias, dtype)
