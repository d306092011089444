"""The definition of `rms_norm` and `add_rms_norm` in plain torch."""

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `headrace_kernels.rms_norm`."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(weight.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See `headrace_kernels.add_rms_norm`."""
    total = (residual.float() + x.float()).to(residual.dtype)
    return rms_norm(total, weight, eps), total
