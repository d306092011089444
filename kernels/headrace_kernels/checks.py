"""Checks of tensors. Every error begins with the argument's name and says what was expected and what came."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headrace_kernels.errors import ArgumentError, out_of_range

__all__ = ["FLOATS", "ArgumentError", "dense", "expect", "expect_dense", "expect_range", "is_dense", "out_of_range"]

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
"""What activations, weights and caches may be stored as; arithmetic is in float32 whatever they are."""


def expect(
    tensor: Tensor,
    name: str,
    shape: Sequence[int | None] | None = None,
    dtype: torch.dtype | tuple[torch.dtype, ...] | None = None,
    like: Tensor | None = None,
) -> None:
    """Raise `ArgumentError` unless `tensor` is as said.

    shape  one entry an axis; None allows any length
    dtype  the one, or one of several
    like   a tensor whose device it must share
    """
    if shape is not None and tensor.shape != shape and not _fits(tensor.shape, shape):
        raise ArgumentError(f"{name}: expected shape {_render(shape)}, got {_render(tensor.shape)}")
    if dtype is not None and tensor.dtype is not dtype and not (isinstance(dtype, tuple) and tensor.dtype in dtype):
        wanted = " or ".join(map(str, dtype)) if isinstance(dtype, tuple) else str(dtype)
        raise ArgumentError(f"{name}: expected {wanted}, got {tensor.dtype}")
    if like is not None and not (tensor.is_cpu and like.is_cpu) and tensor.device != like.device:
        raise ArgumentError(f"{name}: expected on {like.device}, got {tensor.device}")


def expect_dense(tensor: Tensor, name: str) -> None:
    """Raise `ArgumentError` unless `tensor`, which is written in place, is contiguous but for its first axis."""
    if not is_dense(tensor):
        raise ArgumentError(
            f"{name}: expected contiguous but for the first axis, got strides {_render(tensor.stride())} "
            f"for shape {_render(tensor.shape)}"
        )


def expect_range(tensor: Tensor, name: str, low: int, high: int) -> None:
    """Raise `ArgumentError` unless every element is in [low, high). Reads the data: for the slow backends only."""
    outside = ((tensor < low) | (tensor >= high)).flatten().nonzero()
    if outside.numel():
        at = int(outside[0])
        raise ArgumentError(out_of_range(name, str(at), int(tensor.flatten()[at]), low, high))


def is_dense(tensor: Tensor) -> bool:
    """Whether all axes but the first are contiguous, as in a slice of columns of a wider row-major matrix."""
    if tensor.is_contiguous():
        return True
    shape, strides, expected = tensor.shape, tensor.stride(), 1
    for axis in range(len(shape) - 1, 0, -1):
        if strides[axis] != expected and shape[axis] != 1:
            return False
        expected *= shape[axis]
    return True


def dense(tensor: Tensor) -> Tensor:
    """`tensor` itself if it is contiguous but for the first axis, else a contiguous copy."""
    return tensor if is_dense(tensor) else tensor.contiguous()


def _fits(shape: Sequence[int], expected: Sequence[int | None]) -> bool:
    if len(shape) != len(expected):
        return False
    # A loop, not `all`: a generator would double the cost of a call.
    for length, wanted in zip(shape, expected, strict=True):  # noqa: SIM110
        if wanted is not None and wanted != length:
            return False
    return True


def _render(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("any" if n is None else str(n) for n in shape) + "]"
