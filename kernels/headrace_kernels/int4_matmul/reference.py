"""The definition of `int4_matmul` in plain torch."""

import torch
from torch import Tensor

from headrace_kernels.int4_matmul.weight import Int4Weight


def int4_matmul(x: Tensor, weight: Int4Weight, bias: Tensor | None) -> Tensor:
    """See `headrace_kernels.int4_matmul`; x is in the weight's order."""
    out = x.float() @ dequantize(weight)
    return (out if bias is None else out + bias.float()).to(x.dtype)


def dequantize(weight: Int4Weight) -> Tensor:
    """[in_features, out_features] float32: value(k, n)."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=weight.packed.device)
    nibbles = (weight.packed[:, None] >> shifts[:, None] & 15).flatten(0, 1)
    group = torch.arange(len(nibbles), device=nibbles.device) // weight.group_size
    if weight.groups is not None:
        group = weight.groups
    return weight.scales.float()[group] * (nibbles - weight.zeros.int()[group])
