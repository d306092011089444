"""The Triton kernel of `scaled_matmul`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.chip import FLOAT8, capability
from headrace_kernels.gpu.launch import launch
from headrace_kernels.gpu.tiles import Tile, load_step, tile_place
from headrace_kernels.groups import step_within
from headrace_kernels.quantize_rows.triton import as_stored

TILES = (
    # Few rows are bound by reading weights. Narrow tiles make enough programs for all multiprocessors, and 32 KiB of
    # weights under way in each keep the memory busy.
    (16, Tile(rows=16, columns=32, depth=256, warps=4, stages=4)),
    (32, Tile(rows=32, columns=64, depth=128, warps=4, stages=4)),
    (64, Tile(rows=64, columns=64, depth=128, warps=4, stages=4)),
    (None, Tile(rows=128, columns=128, depth=64, warps=8, stages=3)),
)
"""Up to so many rows, that tile."""
INVARIANT = Tile(rows=64, columns=64, depth=128, warps=4, stages=4)
"""For `batch_invariant`: the same for any number of rows, so that sums are in the same order."""


def scaled_matmul(
    x: Tensor,
    x_scales: Tensor | None,
    weight: Tensor,
    weight_scales: Tensor,
    group_size: int | None,
    bias: Tensor | None,
    dtype: torch.dtype,
    batch_invariant: bool,
) -> Tensor:
    """See `headrace_kernels.scaled_matmul`; the arguments are checked, x is dense, weight and its scales contiguous."""
    rows, in_features = x.shape
    out_features = len(weight)
    out = torch.empty(rows, out_features, dtype=dtype, device=x.device)
    tile = INVARIANT if batch_invariant else next(tile for most, tile in TILES if most is None or rows <= most)
    float8_bits = weight.dtype is torch.float8_e4m3fn and (x_scales is None or capability() < FLOAT8)
    launch(
        _scaled_matmul_kernel,
        (tile.grid(rows, out_features),),
        as_stored(x) if float8_bits and x_scales is not None else x,
        x_scales,
        as_stored(weight) if float8_bits else weight,
        weight_scales,
        bias,
        out,
        x.stride(0),
        rows,
        IN_FEATURES=in_features,
        OUT_FEATURES=out_features,
        BLOCK_ROWS=tile.rows,
        BLOCK_COLUMNS=tile.columns,
        BLOCK_DEPTH=tile.depth if group_size is None else step_within(group_size, tile.depth),
        GROUP_SIZE=group_size or 0,
        HAS_X_SCALES=x_scales is not None,
        HAS_BIAS=bias is not None,
        FLOAT8_BITS=float8_bits,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out


@triton.jit(do_not_specialize=["rows"])
def _scaled_matmul_kernel(
    x_ptr,
    x_scales_ptr,
    weight_ptr,
    weight_scales_ptr,
    bias_ptr,
    out_ptr,
    x_stride,
    rows,
    IN_FEATURES: tl.constexpr,
    OUT_FEATURES: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HAS_X_SCALES: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    FLOAT8_BITS: tl.constexpr,
):
    """FLOAT8_BITS: float8 comes as uint8 and is widened here, for chips that can't multiply it or rows that aren't.
    GROUP_SIZE 0: a scale is one output's, and multiplies the whole sum."""
    EXACT: tl.constexpr = HAS_X_SCALES and x_ptr.dtype.element_ty == tl.int8
    SUM: tl.constexpr = tl.int32 if EXACT else tl.float32
    tile_row, tile_column = tile_place(tl.program_id(0), rows, OUT_FEATURES, BLOCK_ROWS, BLOCK_COLUMNS)
    row = tile_row * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tile_column * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    row_inside, column_inside = row < rows, column < OUT_FEATURES
    depth = tl.arange(0, BLOCK_DEPTH)
    # int64: a chunk's rows, or a vocabulary's columns, may pass 2^31 elements.
    x_row_ptr = x_ptr + row.to(tl.int64)[:, None] * x_stride
    weight_column_ptr = weight_ptr + column.to(tl.int64)[None, :] * IN_FEATURES
    total = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32 if GROUP_SIZE else SUM)
    for start in range(0, IN_FEATURES, BLOCK_DEPTH):
        inner = start + depth
        x, weight = load_step(x_row_ptr, weight_column_ptr, inner, row_inside, column_inside, IN_FEATURES)
        if FLOAT8_BITS:
            weight = _widen(weight)
            if HAS_X_SCALES:
                x = _widen(x)
        if GROUP_SIZE:
            # A step stays inside one group.
            scale_ptr = weight_scales_ptr + start // GROUP_SIZE * OUT_FEATURES + column
            scale = tl.load(scale_ptr, mask=column_inside, other=0.0)[None, :]
            products = tl.dot(x, weight.to(x.dtype), input_precision="ieee", out_dtype=SUM)
            total += products.to(tl.float32) * scale
        else:
            total = tl.dot(x, weight.to(x.dtype), total, input_precision="ieee", out_dtype=SUM)
    out = total.to(tl.float32)
    if not GROUP_SIZE:
        out *= tl.load(weight_scales_ptr + column, mask=column_inside, other=0.0)[None, :]
    if HAS_X_SCALES:
        out *= tl.load(x_scales_ptr + row, mask=row_inside, other=0.0)[:, None]
    if HAS_BIAS:
        out += tl.load(bias_ptr + column, mask=column_inside, other=0.0).to(tl.float32)[None, :]
    inside = row_inside[:, None] & column_inside[None, :]
    tl.store(out_ptr + row.to(tl.int64)[:, None] * OUT_FEATURES + column[None, :], out, mask=inside)


@triton.jit
def _widen(bits):
    """float8 e4m3, as uint8, to float16, exactly. float16's exponent has a bit and a bias of 8 more: the same bits in
    its place are the number divided by 2^8, subnormal ones too. NaN, which quantizing never gives, becomes 480."""
    bits = bits.to(tl.uint16)
    return ((bits & 0x80) << 8 | (bits & 0x7F) << 7).to(tl.float16, bitcast=True) * 256.0
