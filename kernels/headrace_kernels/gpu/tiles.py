"""How the programs of a matrix product go through the tiles of its result, and what a step of one reads."""

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


@triton.jit
def load_step(x_row_ptr, weight_column_ptr, inner, row_inside, column_inside, IN_FEATURES: tl.constexpr):
    """Inputs `inner` [depth] of a tile's rows, and weights for them: (x [rows, depth], weight [depth, columns]).

    x_row_ptr [rows, 1] and weight_column_ptr [1, columns] are where input 0 lies. Zero outside the matrices.
    """
    inner_inside = inner < IN_FEATURES
    x = tl.load(x_row_ptr + inner[None, :], mask=row_inside[:, None] & inner_inside[None, :], other=0.0)
    weight_inside = inner_inside[:, None] & column_inside[None, :]
    return x, tl.load(weight_column_ptr + inner[:, None], mask=weight_inside, other=0.0)
