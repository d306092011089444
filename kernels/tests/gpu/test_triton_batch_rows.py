"""Programs find the rows that they work for, interpreted, as counting from the first row on finds them."""

import torch
import triton.language as tl
from hypothesis import example, given, settings
from hypothesis import strategies as st
from triton import jit

from headrace_kernels.gpu.batch_rows import row_of, row_of_token
from headrace_kernels.gpu.launch import launch

TILE = 4


@jit
def _find_rows(tiles_ptr, tokens_ptr, starts_ptr, num_rows, TILE: tl.constexpr):
    place = tl.program_id(0)
    tl.store(tiles_ptr + place, row_of(starts_ptr, num_rows, place, TILE))
    tl.store(tokens_ptr + place, row_of_token(starts_ptr, num_rows, place))


def found(counts, places):
    """(rows of the tiles 0, 1, …, rows of the tokens 0, 1, …) of rows with so many tokens each."""
    starts = torch.tensor([0, *counts]).cumsum(0).int()
    tiles, tokens = torch.full((2, places), -1, dtype=torch.int32)
    launch(_find_rows, (places,), tiles, tokens, starts, len(counts), TILE=TILE)
    return tiles.tolist(), tokens.tolist()


@given(counts=st.lists(st.sampled_from([0, 0, 1, 1, 3, 4, 5, 9]), max_size=9))
@example(counts=[])
@example(counts=[0])
@example(counts=[1] * 40)
@settings(max_examples=15)
def test_every_tile_and_every_token_finds_its_row(counts):
    """Also behind the last row's end, where a recorded graph's padding is."""
    num_rows, num_tokens = len(counts), sum(counts)
    owners, start = [], 0
    for row, count in enumerate(counts):
        owners += [row] * ((start + count) // TILE - start // TILE + 1)
        start += count
    tiles, tokens = found(counts, max(len(owners), num_tokens) + 3)
    assert tiles == owners + [num_rows] * (len(tiles) - len(owners))
    expected = [row for row, count in enumerate(counts) for _ in range(count)]
    assert tokens == expected + [num_rows] * (len(tokens) - num_tokens)
