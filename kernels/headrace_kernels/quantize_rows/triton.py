"""The Triton kernel of `quantize_rows`, and its parts, for kernels that quantize what they have just computed."""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.chip import FLOAT8, capability
from headrace_kernels.gpu.float8 import rounded
from headrace_kernels.gpu.launch import launch
from headrace_kernels.gpu.rows import row_shape


def quantize_rows(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """See `headrace_kernels.quantize_rows`; the argument is checked and dense."""
    rows, size = x.shape
    values, scales = empty((rows, size), dtype, x.device)
    block, warps = row_shape(size)
    launch(
        _quantize_rows_kernel,
        (rows,),
        x,
        as_stored(values),
        scales,
        x.stride(0),
        SIZE=size,
        BLOCK=block,
        num_warps=warps,
        **switches(dtype),
    )
    return values, scales


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Values [rows, size] and scales that a kernel is going to write."""
    return torch.empty(shape, dtype=dtype, device=device), torch.empty(shape[0], dtype=torch.float32, device=device)


def as_stored(values: Tensor) -> Tensor:
    """What a kernel is given to store to: the bits of float8, which not every chip knows as a type."""
    return values if values.dtype is torch.int8 else values.view(torch.uint8)


def switches(dtype: torch.dtype) -> dict[str, Any]:
    """Compile-time parameters of `narrow` for this chip."""
    return {"IS_FLOAT8": dtype is not torch.int8, "CONVERTS_FLOAT8": capability() >= FLOAT8}


@triton.jit
def _quantize_rows_kernel(
    x_ptr,
    values_ptr,
    scales_ptr,
    x_stride,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_FLOAT8: tl.constexpr,
    CONVERTS_FLOAT8: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    x = tl.load(x_ptr + row * x_stride + columns, mask=inside, other=0.0).to(tl.float32)
    scale, inverse = scales_of(magnitude(x), IS_FLOAT8)
    tl.store(values_ptr + row * SIZE + columns, narrow(x * inverse, IS_FLOAT8, CONVERTS_FLOAT8), mask=inside)
    tl.store(scales_ptr + row, scale)


@triton.jit
def magnitude(x):
    """The largest |x|; NaN if any is."""
    return tl.reduce(tl.abs(x), 0, larger)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def scales_of(largest, IS_FLOAT8: tl.constexpr):
    """(what a value is worth, what an element is multiplied by to become one)."""
    LIMIT: tl.constexpr = 448.0 if IS_FLOAT8 else 127.0
    largest = larger(largest, 1e-30)
    return tl.div_rn(largest, LIMIT), tl.div_rn(LIMIT, largest)


@triton.jit
def narrow(scaled, IS_FLOAT8: tl.constexpr, CONVERTS_FLOAT8: tl.constexpr):
    """Round float32 to int8, or to the bits of float8 e4m3 as uint8; nearest, ties to even."""
    if not IS_FLOAT8:
        # Beside 1.5 · 2^23 float32 has no fractions left, so the sum is rounded to an integer.
        narrowed = ((scaled + 12582912.0) - 12582912.0).to(tl.int8)
    elif CONVERTS_FLOAT8:
        narrowed = scaled.to(tl.float8e4nv).to(tl.uint8, bitcast=True)
    else:
        narrowed = rounded(scaled, 1.0, "e4m3")
    return narrowed
