"""Which implementation a call uses."""

from typing import Literal

import torch
from torch import Tensor

from headrace_kernels import native
from headrace_kernels.checks import ArgumentError

Backend = Literal["cpu", "reference"]
"""`cpu` is the C++ library, `reference` plain torch on whatever device the tensors are."""

DTYPES = {torch.float32: native.FLOAT32, torch.bfloat16: native.BFLOAT16}
"""What the C++ library computes with, and the numbers that say so to it."""


def use_cpu_backend(backend: Backend | None, tensor: Tensor, *, supported: bool = True) -> bool:
    """Whether to call the C++ library for operations on tensors like `tensor`.

    None asks for it whenever it can: the tensor is on the CPU, float32 or bfloat16, the library loads, and
    `supported`, the operation's own condition, holds. Naming "cpu" where it can't is an `ArgumentError`.
    """
    if backend == "reference":
        return False
    able = supported and tensor.is_cpu and tensor.dtype in DTYPES
    if backend is None:
        return able and native.available()
    if backend != "cpu":
        raise ArgumentError(f"backend: expected 'cpu', 'reference' or None, got {backend!r}")
    if not able:
        raise ArgumentError(f"backend: 'cpu' can't do {tensor.dtype} of shape {list(tensor.shape)} on {tensor.device}")
    if not native.available():
        raise ArgumentError(f"backend: 'cpu' is not available: {native.why_unavailable()}")
    return True
