"""Linear layers of 8-bit weights, each output or each of its groups of inputs with a scale of its own, on rows of 8 or
more bits."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, ArgumentError, dense, expect
from headrace_kernels.groups import SMALLEST_GROUP
from headrace_kernels.quantize_rows import LARGEST, QuantizedRows
from headrace_kernels.scaled_matmul import reference
from headrace_kernels.scaled_matmul.weight import GroupedWeight

__all__ = ["GroupedWeight", "scaled_matmul"]


def scaled_matmul(
    x: Tensor | QuantizedRows,
    weight: QuantizedRows | GroupedWeight,
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
                     `quantize_rows` of a linear layer's weight; or a `GroupedWeight`, groups being multiples of 32
    bias             [out_features]
    dtype            the result's
    batch_invariant  a row's bits shall depend on the row only (Triton)
    returns          [num_rows, out_features], contiguous

        out[t, n] = x.scales[t] * weight.scales[n] * sum_k x[t, k] * weight[n, k] + bias[n]
        out[t, n] = x.scales[t] * sum_g weight.scales[g, n] * sum_(k of g) x[t, k] * weight[n, k] + bias[n]

    A sum over k is exact for int8 rows, in int32, and float32 otherwise; the rest is float32, rounded once.

    Rows [[100, -50]] with scale 0.01, weights [[127, 0]] with scale 0.5: 0.01 * 0.5 * 12700 = [[63.5]].
    """
    values = x.values if isinstance(x, QuantizedRows) else x
    scales = x.scales if isinstance(x, QuantizedRows) else None
    out_features, in_features = weight.values.shape
    expect(weight.values, "weight", (out_features, in_features), tuple(LARGEST), values)
    group_size = weight.group_size if isinstance(weight, GroupedWeight) else None
    _expect_scales(weight.scales, out_features, in_features, group_size, values)
    expect(values, "x", (None, in_features), FLOATS if scales is None else weight.values.dtype)
    if scales is not None:
        expect(scales, "x.scales", (len(values),), torch.float32, values)
    if bias is not None:
        expect(bias, "bias", (out_features,), FLOATS, values)
    if choose(backend, values, cpu=False) == "triton":
        from headrace_kernels.scaled_matmul import triton

        contiguous = weight.values.contiguous(), weight.scales.contiguous()
        return triton.scaled_matmul(dense(values), scales, *contiguous, group_size, bias, dtype, batch_invariant)
    return reference.scaled_matmul(values, scales, weight.values, weight.scales, group_size, bias, dtype)


def _expect_scales(scales: Tensor, out_features: int, in_features: int, group_size: int | None, like: Tensor) -> None:
    shape: tuple[int, ...] = (out_features,)
    if group_size is not None:
        shape = (-(-in_features // group_size), out_features)
        if shape[0] > 1 and group_size % SMALLEST_GROUP:
            raise ArgumentError(f"weight.group_size: expected a multiple of {SMALLEST_GROUP}, got {group_size}")
    expect(scales, "weight.scales", shape, torch.float32, like)
