"""Which row of a flat batch a program works for, found on the device: launches then depend on shapes only.

A binary search: of 256 rows it reads 8 ends, one after the other, and the programs of a launch find most of them in the
caches.
"""

import triton
import triton.language as tl


@triton.jit
def row_of(starts_ptr, num_rows, tile, TILE: tl.constexpr):
    """The row that owns tile `tile` of TILE queries; num_rows if none does.

    Row r's first tile is starts[r] // TILE + r, so all rows together have at most num_tokens // TILE + num_rows tiles,
    and a row may own one tile more than it needs.
    """
    return _first_that_ends_behind(starts_ptr, num_rows, tile, TILE, 1)


@triton.jit
def row_of_token(starts_ptr, num_rows, token):
    """The row that has this token; num_rows if none does."""
    return _first_that_ends_behind(starts_ptr, num_rows, token, 1, 0)


@triton.jit
def _first_that_ends_behind(starts_ptr, num_rows, place, TILE: tl.constexpr, TILES_OF_ROW: tl.constexpr):
    """The first row with starts[row + 1] // TILE + TILES_OF_ROW * (row + 1) > place; num_rows if there is none."""
    low, high = 0, num_rows
    while low < high:
        middle = (low + high) // 2
        end = tl.load(starts_ptr + middle + 1) // TILE + TILES_OF_ROW * (middle + 1)
        low = tl.where(end <= place, middle + 1, low)
        high = tl.where(end <= place, high, middle)
    return low
