"""Calls the C++ `gumbel_noise`."""

import torch
from torch import Tensor

from headrace_kernels.native import INT, INT32, POINTER, Kernel, num_threads

_gumbel_noise = Kernel("gumbel_noise", POINTER, POINTER, POINTER, INT, INT, INT32)


def gumbel_noise(seeds: Tensor, indices: Tensor, vocab_size: int) -> Tensor:
    """See `headrace_kernels.gumbel_noise`; the arguments are checked and contiguous."""
    out = torch.empty(seeds.shape[0], vocab_size)
    _gumbel_noise(seeds.data_ptr(), indices.data_ptr(), out.data_ptr(), seeds.shape[0], vocab_size, num_threads())
    return out
