"""Linear layers of 4-bit weights in groups ("W4A16"), as GPTQ's and AWQ's checkpoints hold them."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, ArgumentError, dense, expect
from headrace_kernels.groups import SMALLEST_GROUP
from headrace_kernels.int4_matmul import reference
from headrace_kernels.int4_matmul.weight import Int4Weight

__all__ = ["Int4Weight", "int4_matmul"]


def int4_matmul(
    x: Tensor,
    weight: Int4Weight,
    bias: Tensor | None = None,
    *,
    backend: Backend | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    """Multiply rows by 4-bit weights.

    x                [num_rows, in_features]; any stride between rows
    weight           [in_features, out_features]; `int4_matmul.layouts` makes it of a checkpoint's tensors
    bias             [out_features]
    batch_invariant  a row's bits shall depend on the row only (Triton)
    returns          [num_rows, out_features] in x's dtype, contiguous

        value(k, n) = weight.scales[group(k), n] * (nibble(k, n) - weight.zeros[group(k), n])
        out[t, n] = sum_k x[t, order[k]] * value(k, n) + bias[n]

    with nibble(k, n) the bits 4 (k % 8) … 4 (k % 8) + 3 of weight.packed[k // 8, n], group(k) = k // group_size, or
    weight.groups[k] where there are some, and order[k] = k where there is no order. In float32, rounded once, for few
    rows and with `batch_invariant`; of many, and with weight.groups, the values are rounded to x's dtype first.

    A column of the nibbles [9, 8] with zero 8 and scale 0.5 stands for [0.5, 0], so a row [3, 7] gives 1.5.
    """
    in_features, out_features = weight.in_features, weight.packed.shape[1]
    groups = None if weight.groups is not None else -(-in_features // weight.group_size)
    expect(weight.packed, "weight.packed", (in_features // 8, out_features), torch.int32, x)
    expect(weight.scales, "weight.scales", (groups, out_features), FLOATS, x)
    expect(weight.zeros, "weight.zeros", weight.scales.shape, torch.uint8, x)
    expect(x, "x", (None, in_features), FLOATS)
    if bias is not None:
        expect(bias, "bias", (out_features,), FLOATS, x)
    if weight.groups is not None:
        expect(weight.groups, "weight.groups", (in_features,), torch.int32, x)
    elif weight.group_size % SMALLEST_GROUP and len(weight.scales) > 1:
        raise ArgumentError(f"weight.group_size: expected a multiple of {SMALLEST_GROUP}, got {weight.group_size}")
    if weight.order is not None:
        expect(weight.order, "weight.order", (in_features,), (torch.int32, torch.int64), x)
        x = x.index_select(1, weight.order)
    if choose(backend, x, cpu=False) == "triton":
        from headrace_kernels.int4_matmul import triton

        return triton.int4_matmul(dense(x), weight, bias, batch_invariant)
    return reference.int4_matmul(x, weight, bias)
