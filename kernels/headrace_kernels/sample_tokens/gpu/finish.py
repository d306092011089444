"""The last step of every row: its token goes into the results, the next step's input, and its counts."""

import triton
import triton.language as tl

from headrace_kernels.sample_tokens.gpu.device_columns import COUNTS
from headrace_kernels.sample_tokens.gpu.rows import NEVER, NO_TOKEN, is_finite, lowest_best, word


@triton.jit
def conclude(
    place, row, token, possible, ids_ptr, possible_ptr, last_token_ptr, parameters_ptr, counts_ptr, vocab_size
):
    """The row got its token: into the results, the next step's input and the row's counts."""
    from_zero = tl.where(possible, token, 0)
    tl.store(ids_ptr + place, from_zero.to(tl.int64))
    tl.store(possible_ptr + place, possible.to(tl.int32))
    if last_token_ptr is not None:
        tl.store(last_token_ptr + row, from_zero.to(tl.int64))
    counted = word(parameters_ptr, row, COUNTS)
    if (counted >= 0) & possible:
        count_ptr = counts_ptr + counted.to(tl.int64) * vocab_size + from_zero
        tl.store(count_ptr, tl.maximum(tl.load(count_ptr), 1) + 1)


@triton.jit
def finish_kernel(
    tile_bests_ptr,  # [places, tiles]
    tile_ids_ptr,  # [places, tiles]
    filtered_at_ptr,  # [places] or −1
    rows_ptr,  # [places]
    parameters_ptr,
    counts_ptr,
    last_token_ptr,  # [max_rows] int64, written; or None
    ids_ptr,  # [places] int64, written
    possible_ptr,  # [places] int32, written
    vocab_size,
    num_tiles,
    TILES: tl.constexpr,  # the next power of two
):
    """The best of a row's tiles, unless filters choose among its tokens."""
    place = tl.program_id(0)
    if tl.load(filtered_at_ptr + place) < 0:
        tiles = tl.arange(0, TILES)
        at = place.to(tl.int64) * num_tiles + tiles
        bests = tl.load(tile_bests_ptr + at, mask=tiles < num_tiles, other=NEVER)
        best, token = lowest_best(bests, tl.load(tile_ids_ptr + at, mask=tiles < num_tiles, other=NO_TOKEN))
        row = tl.load(rows_ptr + place)
        possible = is_finite(best)
        conclude(
            place, row, token, possible, ids_ptr, possible_ptr, last_token_ptr, parameters_ptr, counts_ptr, vocab_size
        )
