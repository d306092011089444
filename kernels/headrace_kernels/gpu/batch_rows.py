"""Which row of a flat batch a program works for, found on the device: launches then depend on shapes only."""

import triton
import triton.language as tl


@triton.jit
def row_of(starts_ptr, num_rows, index, TILE: tl.constexpr):
    """The row whose tiles of TILE queries include tile `index`; num_rows if none does.

    Row r's first tile is starts[r] // TILE + r, so all rows together have at most num_tokens // TILE + num_rows tiles,
    and a row may own one tile more than it needs. With TILE 1 and no such tiles, use `row_of_token`.
    Counts the rows that end before, with one load of many; a binary search would be a chain of dependent ones.
    """
    row = 0
    for first in range(0, num_rows, 256):
        rows = first + tl.arange(0, 256)
        ends = tl.load(starts_ptr + rows + 1, mask=rows < num_rows, other=2**30)
        row += tl.sum((ends // TILE + rows + 1 <= index).to(tl.int32))
    return row


@triton.jit
def row_of_token(starts_ptr, num_rows, token):
    """The row that has this token; num_rows if none does."""
    row = 0
    for first in range(0, num_rows, 256):
        rows = first + tl.arange(0, 256)
        ends = tl.load(starts_ptr + rows + 1, mask=rows < num_rows, other=2**30)
        row += tl.sum((ends <= token).to(tl.int32))
    return row
