"""How the programs of a matrix product go through the tiles of its result."""

from dataclasses import dataclass

import triton
import triton.language as tl


@dataclass(frozen=True)
class Tile:
    """What one program of a product computes, and with what."""

    rows: int
    columns: int
    depth: int  # inner elements of one step of its loop
    warps: int
    stages: int  # steps whose loads are under way

    def grid(self, rows: int, columns: int) -> int:
        """Programs for a result of so many rows and columns."""
        return triton.cdiv(rows, self.rows) * triton.cdiv(columns, self.columns)


@triton.jit
def tile_place(program, rows, columns, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """(row of tiles, column of tiles) of a program.

    8 rows of tiles go together, column by column: the programs that run at one time read few different columns of
    weights and few rows, so most of what they read is in the L2 cache.
    """
    TOGETHER: tl.constexpr = 8
    tile_rows = tl.cdiv(rows, BLOCK_ROWS)
    span = TOGETHER * tl.cdiv(columns, BLOCK_COLUMNS)
    first = program // span * TOGETHER
    height = tl.minimum(tile_rows - first, TOGETHER)
    inside = program % span
    return first + inside % height, inside // height
