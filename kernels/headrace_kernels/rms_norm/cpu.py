"""Calls the C++ `rms_norm` and `add_rms_norm`."""

import torch
from torch import Tensor

from headrace_kernels.backends import DTYPES
from headrace_kernels.native import FLOAT, INT, INT32, POINTER, Kernel, num_threads

_rms_norm = Kernel("rms_norm", POINTER, INT, INT32, POINTER, INT32, POINTER, INT, INT, INT, FLOAT, INT32)
_add_rms_norm = Kernel(
    "add_rms_norm",
    *(POINTER, INT, INT32),  # x, its stride and dtype
    *(POINTER, INT, INT32),  # residual, its stride and dtype
    *(POINTER, INT32),  # weight and its dtype
    *(POINTER, POINTER, INT, INT, FLOAT, INT32),
)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `headrace_kernels.rms_norm`; the arguments are checked and dense."""
    out = torch.empty(x.shape, dtype=weight.dtype)
    _rms_norm(
        x.data_ptr(),
        x.stride(0),
        DTYPES[x.dtype],
        weight.data_ptr(),
        DTYPES[weight.dtype],
        out.data_ptr(),
        x.shape[0],
        x.shape[1] if x.dim() == 3 else 1,
        weight.shape[0],
        eps,
        num_threads(),
    )
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See `headrace_kernels.add_rms_norm`; the arguments are checked and dense."""
    normed = torch.empty(x.shape, dtype=weight.dtype)
    total = torch.empty(x.shape, dtype=residual.dtype)
    _add_rms_norm(
        x.data_ptr(),
        x.stride(0),
        DTYPES[x.dtype],
        residual.data_ptr(),
        residual.stride(0),
        DTYPES[residual.dtype],
        weight.data_ptr(),
        DTYPES[weight.dtype],
        normed.data_ptr(),
        total.data_ptr(),
        *x.shape,
        eps,
        num_threads(),
    )
    return normed, total
