"""Linear layers whose rows have the same bits in every batch."""

from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, dense, expect
from headrace_kernels.invariant_linear import reference


def invariant_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, backend: Backend | None = None
) -> Tensor:
    """Multiply rows by a weight matrix, each as if it were alone.

    x        [num_rows, in_features]; any stride between rows
    weight   [out_features, in_features] in x's dtype
    bias     [out_features]
    returns  [num_rows, out_features] in x's dtype, contiguous

        out[t, n] = sum_k x[t, k] * weight[n, k] + bias[n]

    in float32, rounded once.

    The Triton backend adds up in an order that the weight's shape and type alone decide, so out[t] is the same bit for
    bit whatever the other rows hold, however many there are, and wherever among them x[t] is. A library's product is
    faster, for it picks another way to add up for another number of rows. The definition is such a product.

    A row [1, 2] times the weights [[3, 4], [5, 6]] with bias [0, 10] is [11, 27].
    """
    out_features, in_features = weight.shape
    expect(x, "x", (None, in_features), FLOATS)
    expect(weight, "weight", dtype=x.dtype, like=x)
    if bias is not None:
        expect(bias, "bias", (out_features,), FLOATS, x)
    if choose(backend, x, cpu=False) == "triton":
        from headrace_kernels.invariant_linear import triton

        return triton.invariant_linear(dense(x), dense(weight), bias)
    return reference.invariant_linear(x, weight, bias)
