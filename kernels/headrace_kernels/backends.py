"""Which implementation a call uses."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from headrace_kernels import native
from headrace_kernels.checks import ArgumentError

Backend = Literal["cpu", "triton", "reference"]
"""`cpu` is the C++ library, `triton` the GPU's kernels, `reference` plain torch on whatever device the tensors are."""

DTYPES = {torch.float32: native.FLOAT32, torch.bfloat16: native.BFLOAT16}
"""What the C++ library computes with, and the numbers that say so to it."""


def choose(backend: Backend | None, tensor: Tensor, *, cpu: bool = True, triton: bool = True) -> Backend:
    """Who does an operation on tensors like `tensor`. `cpu`, `triton`: whether each can do it, as far as the operation
    itself is concerned.

    None asks for the one that is preferred (`preferring`), or for the fastest that can: on the CPU the C++ library, if
    it loads and the tensor is float32 or bfloat16; elsewhere Triton, if it is installed. Naming one that can't is an
    `ArgumentError`. Triton computes on CPU tensors too when it interprets (TRITON_INTERPRET=1), but only where it is
    named or preferred.
    """
    if backend == "reference":
        return backend
    able = {
        "cpu": cpu and tensor.is_cpu and tensor.dtype in DTYPES,
        "triton": triton and (not tensor.is_cpu or _interpreting()),
    }
    if backend is None:
        if _preferred is not None and able.get(_preferred, True):
            return _preferred
        if tensor.is_cpu:
            return "cpu" if able["cpu"] and native.available() else "reference"
        return "triton" if able["triton"] and find_spec("triton") is not None else "reference"
    if backend not in able:
        raise ArgumentError(f"backend: expected 'cpu', 'triton', 'reference' or None, got {backend!r}")
    if not able[backend]:
        raise ArgumentError(
            f"backend: '{backend}' can't do {tensor.dtype} of shape {list(tensor.shape)} on {tensor.device}"
        )
    if backend == "cpu" and not native.available():
        raise ArgumentError(f"backend: 'cpu' is not available: {native.why_unavailable()}")
    return backend


_preferred: Backend | None = None


@contextmanager
def preferring(backend: Backend) -> Iterator[None]:
    """Calls that leave the choice open go to this backend, where it can do them: for running a whole model by it."""
    global _preferred
    before, _preferred = _preferred, backend
    try:
        yield
    finally:
        _preferred = before


def _interpreting() -> bool:
    if find_spec("triton") is None:
        return False
    from headrace_kernels.gpu.launch import interpreting

    return interpreting()
