"""The Triton kernel of `invariant_linear`.

There is one tile a type, for one row and for thousands: other tiles may be multiplied by other instructions, which add
up in another order. A program goes through all inputs, from the first to the last.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.launch import launch
from headrace_kernels.gpu.tiles import Tile, load_step, tile_place

HALVES = Tile(rows=64, columns=64, depth=64, warps=4, stages=4)
"""For bfloat16 and float16. 64 rows are what Hopper's matrix instructions want, and with narrow columns a layer has a
program for every other multiprocessor even where there is only one row."""

SINGLE = Tile(rows=32, columns=32, depth=32, warps=4, stages=3)
"""For float32, which is multiplied without tensor cores: registers limit."""


def invariant_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """See `headrace_kernels.invariant_linear`; the arguments are checked and dense."""
    rows, in_features = x.shape
    out_features = len(weight)
    out = torch.empty(rows, out_features, dtype=x.dtype, device=x.device)
    tile = SINGLE if x.dtype is torch.float32 else HALVES
    launch(
        _invariant_linear_kernel,
        (tile.grid(rows, out_features),),
        x,
        weight,
        bias,
        out,
        x.stride(0),
        weight.stride(0),
        rows,
        IN_FEATURES=in_features,
        OUT_FEATURES=out_features,
        BLOCK_ROWS=tile.rows,
        BLOCK_COLUMNS=tile.columns,
        BLOCK_DEPTH=tile.depth,
        HAS_BIAS=bias is not None,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out


@triton.jit(do_not_specialize=["rows"])
def _invariant_linear_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    x_stride,
    weight_stride,
    rows,
    IN_FEATURES: tl.constexpr,
    OUT_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    tile_row, tile_column = tile_place(tl.program_id(0), rows, OUT_FEATURES, BLOCK_ROWS, BLOCK_COLUMNS)
    row = tile_row * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tile_column * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    row_inside, column_inside = row < rows, column < OUT_FEATURES
    # int64: a chunk's rows, or a vocabulary's columns, may pass 2^31 elements.
    x_row_ptr = x_ptr + row.to(tl.int64)[:, None] * x_stride
    weight_column_ptr = weight_ptr + column.to(tl.int64)[None, :] * weight_stride
    total = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    for start in range(0, IN_FEATURES, BLOCK_DEPTH):
        inner = start + tl.arange(0, BLOCK_DEPTH)
        x, weight = load_step(x_row_ptr, weight_column_ptr, inner, row_inside, column_inside, IN_FEATURES)
        total = tl.dot(x, weight, total, input_precision="ieee")
    if HAS_BIAS:
        total += tl.load(bias_ptr + column, mask=column_inside, other=0.0).to(tl.float32)[None, :]
    inside = row_inside[:, None] & column_inside[None, :]
    tl.store(out_ptr + row.to(tl.int64)[:, None] * OUT_FEATURES + column[None, :], total, mask=inside)
