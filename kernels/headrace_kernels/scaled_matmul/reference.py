"""The definition of `scaled_matmul` in plain torch."""

import torch
from torch import Tensor


def scaled_matmul(
    x: Tensor,
    x_scales: Tensor | None,
    weight: Tensor,
    weight_scales: Tensor,
    group_size: int | None,
    bias: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """See `headrace_kernels.scaled_matmul`."""
    if group_size is None:
        out = _product(x, weight) * weight_scales
    else:
        parts = zip(x.split(group_size, 1), weight.split(group_size, 1), weight_scales, strict=True)
        out = torch.stack([_product(*part) * scales for *part, scales in parts]).sum(0)
    if x_scales is not None:
        out *= x_scales[:, None]
    if bias is not None:
        out += bias.float()
    return out.to(dtype)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    # int8 products are exact in float64 whatever the order of the sum.
    wide = torch.float64 if x.dtype is torch.int8 else torch.float32
    return (x.to(wide) @ weight.to(wide).T).float()
