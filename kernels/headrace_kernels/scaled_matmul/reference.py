"""The definition of `scaled_matmul` in plain torch."""

import torch
from torch import Tensor


def scaled_matmul(
    x: Tensor, x_scales: Tensor | None, weight: Tensor, weight_scales: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """See `headrace_kernels.scaled_matmul`."""
    # int8 products are exact in float64 whatever the order of the sum.
    wide = torch.float64 if x.dtype is torch.int8 else torch.float32
    out = (x.to(wide) @ weight.to(wide).T).float()
    out *= weight_scales
    if x_scales is not None:
        out *= x_scales[:, None]
    if bias is not None:
        out += bias.float()
    return out.to(dtype)
