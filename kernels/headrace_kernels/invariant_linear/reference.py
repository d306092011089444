"""The definition of `invariant_linear` in plain torch."""

from torch import Tensor


def invariant_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """See `headrace_kernels.invariant_linear`."""
    out = x.float() @ weight.float().T
    return (out if bias is None else out + bias.float()).to(x.dtype)
