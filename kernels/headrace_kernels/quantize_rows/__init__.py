"""Rows in 8 bits, each with a scale of its own: what 8-bit matrix products read."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, ArgumentError, dense, expect
from headrace_kernels.quantize_rows import reference

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
"""The types, and the number in each that the largest element of a row becomes."""


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Rows of which element i was about values[row, i] * scales[row]."""

    values: Tensor  # [rows, size] int8 or float8_e4m3fn
    scales: Tensor  # [rows] float32


def quantize_rows(x: Tensor, dtype: torch.dtype, *, backend: Backend | None = None) -> QuantizedRows:
    """Scale each row to the whole range of `dtype` and round it.

    x        [rows, size]; any stride between rows
    dtype    int8 or float8_e4m3fn
    returns  values, contiguous, and scales

        largest = max(max_i |x[row, i]|, 1e-30)        L = 127 for int8, 448 for float8_e4m3fn
        scales[row] = largest / L
        values[row, i] = x[row, i] * (L / largest)     rounded to nearest, ties to even

    in float32. A row that isn't finite gets a scale that isn't, so a product of it isn't either.

    [2, -1, 0.5] in int8 is [127, -64, 32] with scale 2 / 127.
    """
    expect(x, "x", (None, None), FLOATS)
    check_type(dtype)
    if choose(backend, x, cpu=False) == "triton":
        from headrace_kernels.quantize_rows import triton

        return QuantizedRows(*triton.quantize_rows(dense(x), dtype))
    return QuantizedRows(*reference.quantize_rows(x, dtype, LARGEST[dtype]))


def check_type(dtype: torch.dtype) -> None:
    """Raises ArgumentError for a type that rows can't be quantized to."""
    if dtype not in LARGEST:
        raise ArgumentError(f"dtype: expected {' or '.join(map(str, LARGEST))}, got {dtype}")
