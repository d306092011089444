"""The Triton kernels of `silu_and_mul`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.launch import launch
from headrace_kernels.quantize_rows.triton import as_stored, empty, larger, magnitude, narrow, scales_of, switches


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """See `headrace_kernels.silu_and_mul`; the argument is checked and dense."""
    tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(tokens, size, dtype=gate_up.dtype, device=gate_up.device)
    block = min(triton.next_power_of_2(size), 1024)
    grid = (tokens, triton.cdiv(size, block))
    launch(_silu_and_mul_kernel, grid, gate_up, out, gate_up.stride(0), SIZE=size, BLOCK=block, num_warps=4)
    return out


def silu_and_mul_quantized(gate_up: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """See `headrace_kernels.silu_and_mul_quantized`; the argument is checked and dense."""
    tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    values, scales = empty((tokens, size), dtype, gate_up.device)
    launch(
        _silu_and_mul_quantized_kernel,
        (tokens,),
        gate_up,
        as_stored(values),
        scales,
        gate_up.stride(0),
        SIZE=size,
        BLOCK=min(triton.next_power_of_2(size), 4096),
        num_warps=8,
        **switches(dtype),
    )
    return values, scales


@triton.jit
def _silu_and_mul_kernel(gate_up_ptr, out_ptr, stride, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    out = _gated(gate_up_ptr + token * stride, columns, SIZE)
    tl.store(out_ptr + token * SIZE + columns, out, mask=columns < SIZE)


@triton.jit
def _silu_and_mul_quantized_kernel(
    gate_up_ptr,
    values_ptr,
    scales_ptr,
    stride,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    IS_FLOAT8: tl.constexpr,
    CONVERTS_FLOAT8: tl.constexpr,
):
    """A row of a feed-forward layer is too long for registers. It is computed twice: first for its scale, then, read
    from the caches, for its values."""
    token = tl.program_id(0).to(tl.int64)
    row_ptr = gate_up_ptr + token * stride
    largest = 0.0
    for start in range(0, SIZE, BLOCK):
        largest = larger(largest, magnitude(_gated(row_ptr, start + tl.arange(0, BLOCK), SIZE).to(tl.float32)))
    scale, inverse = scales_of(largest, IS_FLOAT8)
    tl.store(scales_ptr + token, scale)
    for start in range(0, SIZE, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        out = _gated(row_ptr, columns, SIZE).to(tl.float32)
        values = narrow(out * inverse, IS_FLOAT8, CONVERTS_FLOAT8)
        tl.store(values_ptr + token * SIZE + columns, values, mask=columns < SIZE)


@triton.jit
def _gated(row_ptr, columns, SIZE: tl.constexpr):
    """The result at `columns` of one row, rounded to the row's type; 0 behind its end."""
    inside = columns < SIZE
    gate = tl.load(row_ptr + columns, mask=inside, other=0.0)
    up = tl.load(row_ptr + SIZE + columns, mask=inside, other=0.0).to(tl.float32)
    wide = gate.to(tl.float32)
    return (wide / (1 + tl.exp(-wide)) * up).to(gate.dtype)
