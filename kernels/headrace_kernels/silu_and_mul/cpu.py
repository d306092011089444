"""Calls the C++ `silu_and_mul`."""

import torch
from torch import Tensor

from headrace_kernels.backends import DTYPES
from headrace_kernels.native import INT, INT32, POINTER, Kernel, num_threads

_silu_and_mul = Kernel("silu_and_mul", POINTER, INT, INT32, POINTER, INT, INT, INT32)


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """See `headrace_kernels.silu_and_mul`; the argument is checked and dense."""
    num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(num_tokens, size, dtype=gate_up.dtype)
    _silu_and_mul(
        gate_up.data_ptr(), gate_up.stride(0), DTYPES[gate_up.dtype], out.data_ptr(), num_tokens, size, num_threads()
    )
    return out
