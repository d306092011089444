"""The Triton kernels of `int4_matmul`.

Up to 16 rows the product is bound by reading weights, and a layer has too few columns to fill a GPU with programs. So
each program takes a part of the inputs, and a second launch adds the parts in order: a result does not depend on which
program ends first. Up to MANY_ROWS a program unpacks the weights it multiplies. Beyond that the weights are unpacked
once, in memory, and torch's product does the rest. The limits are reckoned, not measured.

With `batch_invariant` there is one tile and one part, whatever the number of rows, so sums are always in one order.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.launch import launch
from headrace_kernels.gpu.tiles import Tile, tile_place
from headrace_kernels.groups import step_within
from headrace_kernels.int4_matmul.weight import Int4Weight

TILES = (
    (16, Tile(rows=16, columns=64, depth=128, warps=4, stages=4)),
    (32, Tile(rows=32, columns=64, depth=128, warps=4, stages=3)),
    (64, Tile(rows=64, columns=64, depth=64, warps=4, stages=3)),
    (None, Tile(rows=128, columns=128, depth=32, warps=8, stages=3)),
)
"""Up to so many rows, that tile; its depth is the most, for a step stays inside one group."""
TILES_WITH_GROUPS = (
    (16, Tile(rows=16, columns=64, depth=32, warps=4, stages=4)),
    (32, Tile(rows=32, columns=64, depth=32, warps=4, stages=3)),
    *TILES[2:],
)
"""With `groups` each weight has a scale of its own, which registers must hold."""
INVARIANT = Tile(rows=64, columns=64, depth=64, warps=4, stages=3)
"""For `batch_invariant`."""
MANY_ROWS = 512
PROGRAMS = 512
"""That few rows are split into: four for each multiprocessor of an H200."""
MOST_PARTS = 16


def int4_matmul(x: Tensor, weight: Int4Weight, bias: Tensor | None, batch_invariant: bool) -> Tensor:
    """See `headrace_kernels.int4_matmul`; the arguments are checked, x is dense and in the weight's order."""
    rows = len(x)
    if rows > MANY_ROWS and not batch_invariant:
        values = dequantize(weight, x.dtype)
        return x @ values if bias is None else torch.addmm(bias.to(x.dtype), x, values)
    out_features = weight.packed.shape[1]
    tiles = TILES if weight.groups is None else TILES_WITH_GROUPS
    tile = INVARIANT if batch_invariant else next(tile for most, tile in tiles if most is None or rows <= most)
    within = weight.groups is None and len(weight.scales) > 1
    depth = step_within(weight.group_size, tile.depth) if within else tile.depth
    splits = rows <= TILES[0][0] and not batch_invariant
    parts = _parts(weight, depth, triton.cdiv(out_features, tile.columns)) if splits else 1
    out = torch.empty(rows, out_features, dtype=x.dtype, device=x.device)
    sums = out if parts == 1 else torch.empty(parts, rows, out_features, dtype=torch.float32, device=x.device)
    launch(
        _int4_matmul_kernel,
        (tile.grid(rows, out_features), parts),
        x,
        weight.packed,
        weight.scales,
        weight.zeros,
        weight.groups,
        bias if parts == 1 else None,
        sums,
        x.stride(0),
        rows,
        IN_FEATURES=weight.in_features,
        OUT_FEATURES=out_features,
        GROUP_SIZE=weight.group_size,
        PARTS=parts,
        BLOCK_ROWS=tile.rows,
        BLOCK_COLUMNS=tile.columns,
        BLOCK_DEPTH=depth,
        HAS_GROUPS=weight.groups is not None,
        HAS_BIAS=parts == 1 and bias is not None,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if parts > 1:
        launch(
            _add_parts_kernel,
            (rows, triton.cdiv(out_features, 1024)),
            sums,
            bias,
            out,
            rows,
            OUT_FEATURES=out_features,
            PARTS=parts,
            BLOCK=1024,
            HAS_BIAS=bias is not None,
            num_warps=4,
        )
    return out


def dequantize(weight: Int4Weight, dtype: torch.dtype) -> Tensor:
    """[in_features, out_features], rounded to dtype."""
    out_features = weight.packed.shape[1]
    values = torch.empty(weight.in_features, out_features, dtype=dtype, device=weight.packed.device)
    launch(
        _dequantize_kernel,
        (len(weight.packed), triton.cdiv(out_features, 256)),
        weight.packed,
        weight.scales,
        weight.zeros,
        weight.groups,
        values,
        OUT_FEATURES=out_features,
        GROUP_SIZE=weight.group_size,
        HAS_GROUPS=weight.groups is not None,
        BLOCK=256,
        num_warps=4,
    )
    return values


def _parts(weight: Int4Weight, depth: int, tile_columns: int) -> int:
    """A power of two, by the layer's shape alone: each shape is one compiled kernel."""
    steps = triton.cdiv(weight.in_features, depth)
    parts = 1
    while 2 * parts <= min(MOST_PARTS, steps) and parts * tile_columns < PROGRAMS:
        parts *= 2
    return parts


@triton.jit(do_not_specialize=["rows"])
def _int4_matmul_kernel(
    x_ptr,
    packed_ptr,
    scales_ptr,
    zeros_ptr,
    groups_ptr,
    bias_ptr,
    out_ptr,
    x_stride,
    rows,
    IN_FEATURES: tl.constexpr,
    OUT_FEATURES: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    HAS_GROUPS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    STEPS: tl.constexpr = (IN_FEATURES + BLOCK_DEPTH - 1) // BLOCK_DEPTH
    STEPS_OF_PART: tl.constexpr = (STEPS + PARTS - 1) // PARTS
    tile_row, tile_column = tile_place(tl.program_id(0), rows, OUT_FEATURES, BLOCK_ROWS, BLOCK_COLUMNS)
    part = tl.program_id(1)
    row = tile_row * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = tile_column * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    column_inside = column < OUT_FEATURES
    x_row_ptr = x_ptr + row.to(tl.int64)[:, None] * x_stride
    total = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    for step in range(part * STEPS_OF_PART, tl.minimum((part + 1) * STEPS_OF_PART, STEPS)):
        inner = step * BLOCK_DEPTH + tl.arange(0, BLOCK_DEPTH)
        word = step * (BLOCK_DEPTH // 8) + tl.arange(0, BLOCK_DEPTH // 8)
        x_inside = (row < rows)[:, None] & (inner < IN_FEATURES)[None, :]
        x = tl.load(x_row_ptr + inner[None, :], mask=x_inside, other=0.0)
        word_inside = (word < IN_FEATURES // 8)[:, None] & column_inside[None, :]
        words = tl.load(packed_ptr + word[:, None] * OUT_FEATURES + column[None, :], mask=word_inside, other=0)
        if HAS_GROUPS:
            group = tl.load(groups_ptr + inner, mask=inner < IN_FEATURES, other=0)
            place = group[:, None] * OUT_FEATURES + column[None, :]
            zero = tl.load(zeros_ptr + place, mask=column_inside[None, :], other=0).to(tl.float32)
            scale = tl.load(scales_ptr + place, mask=column_inside[None, :], other=0.0).to(tl.float32)
            none = tl.zeros((BLOCK_COLUMNS,), tl.float32)
            values = (_integers(words, none, BLOCK_DEPTH, BLOCK_COLUMNS) - zero) * scale
            total = tl.dot(x, values.to(x.dtype), total, input_precision="ieee")
        else:
            group = step * BLOCK_DEPTH // GROUP_SIZE
            zero = tl.load(zeros_ptr + group * OUT_FEATURES + column, mask=column_inside, other=0)
            scale = tl.load(scales_ptr + group * OUT_FEATURES + column, mask=column_inside, other=0.0).to(tl.float32)
            # The scale is the same for the whole step, so it multiplies the sum instead of each weight.
            integers = _integers(words, zero.to(tl.float32), BLOCK_DEPTH, BLOCK_COLUMNS).to(x.dtype)
            total += tl.dot(x, integers, input_precision="ieee") * scale[None, :]
    if HAS_BIAS:
        total += tl.load(bias_ptr + column, mask=column_inside, other=0.0).to(tl.float32)[None, :]
    out_row = part.to(tl.int64) * rows + row
    inside = (row < rows)[:, None] & column_inside[None, :]
    tl.store(out_ptr + out_row[:, None] * OUT_FEATURES + column[None, :], total, mask=inside)


@triton.jit
def _integers(words, zero, DEPTH: tl.constexpr, COLUMNS: tl.constexpr):
    """words [DEPTH / 8, COLUMNS] int32, zero [COLUMNS] → [DEPTH, COLUMNS] float32: nibble - zero.

    The nibble in the lowest bits of 2^23 as float32 is 2^23 + nibble: cheaper than converting an integer, and exact.
    """
    shifts = 4 * tl.arange(0, 8)
    nibbles = (words[:, None, :] >> shifts[None, :, None]) & 15
    biased = (nibbles | 0x4B000000).to(tl.float32, bitcast=True)
    return tl.reshape(biased - (zero + 8388608.0)[None, None, :], (DEPTH, COLUMNS))


@triton.jit(do_not_specialize=["rows"])
def _add_parts_kernel(
    parts_ptr,
    bias_ptr,
    out_ptr,
    rows,
    OUT_FEATURES: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < OUT_FEATURES
    total = tl.zeros((BLOCK,), tl.float32)
    for part in range(PARTS):
        total += tl.load(parts_ptr + (part * rows + row) * OUT_FEATURES + column, mask=inside, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * OUT_FEATURES + column, total, mask=inside)


@triton.jit
def _dequantize_kernel(
    packed_ptr,
    scales_ptr,
    zeros_ptr,
    groups_ptr,
    values_ptr,
    OUT_FEATURES: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    HAS_GROUPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    word = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < OUT_FEATURES
    words = tl.load(packed_ptr + word * OUT_FEATURES + column, mask=inside, other=0)
    if not HAS_GROUPS:
        # The eight inputs of a word are of one group.
        place = word * 8 // GROUP_SIZE * OUT_FEATURES + column
        zero = tl.load(zeros_ptr + place, mask=inside, other=0).to(tl.float32)
        scale = tl.load(scales_ptr + place, mask=inside, other=0.0).to(tl.float32)
    for i in tl.static_range(8):
        if HAS_GROUPS:
            place = tl.load(groups_ptr + word * 8 + i) * OUT_FEATURES + column
            zero = tl.load(zeros_ptr + place, mask=inside, other=0).to(tl.float32)
            scale = tl.load(scales_ptr + place, mask=inside, other=0.0).to(tl.float32)
        value = (((words >> (4 * i)) & 15).to(tl.float32) - zero) * scale
        tl.store(values_ptr + (word * 8 + i) * OUT_FEATURES + column, value, mask=inside)
