"""How large the Triton kernels' tiles are: tables by shape and chip, nothing is tried out while serving.

Chosen so that nothing spills and two or three tiles of keys and values are on their way while one is multiplied. What
they cost on a chip is for `make gpu-check` to say.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tiles:
    """Of one thread block."""

    rows: int  # queries × heads of a group
    keys: int
    warps: int
    stages: int


def next_power_of_two(n: int) -> int:
    """The smallest that is at least n."""
    return 1 << (n - 1).bit_length()


def mixed_tiles(
    head_dim: int, group: int, queries_per_row: float, query_bytes: int, cache_bytes: int, chip: int
) -> Tiles:
    """For chunks, or chunks and decode rows. `group`: query heads of a KV head."""
    rows = next_power_of_two(group)
    if queries_per_row * group < 32:  # mostly decode rows: rows of a larger tile would be empty
        return Tiles(max(16, rows), 32 if head_dim > 128 else 64, 4, 2 if head_dim > 128 else 3)
    if query_bytes == 4:  # no tensor cores: registers limit
        return Tiles(max(16, rows), 32, 4, 2)
    by_warp = chip < 90 or chip >= 120  # warps multiply by themselves: results take registers of few threads
    if head_dim > 128:
        return Tiles(max(64, rows), 32, 8 if by_warp or cache_bytes == 1 else 4, 2)  # widening takes registers
    if by_warp:
        return Tiles(max(64, rows), 32, 4, 3)
    return Tiles(max(128, rows), 64, 8, 3)


def decode_tiles(head_dim: int, group: int, query_bytes: int, cache_bytes: int, chip: int) -> Tiles:
    """For steps of decode rows alone: bytes on their way matter, not products."""
    rows = max(16, next_power_of_two(group))
    if query_bytes == 4:
        return Tiles(rows, 32, 4, 2)
    if cache_bytes == 1:  # widening takes registers
        if 96 < head_dim <= 128 and chip >= 100:  # the compiler stops at 128 for 4 warps, and spills
            return Tiles(rows, 64, 8, 3)
        if 128 < head_dim < 256:  # masks of what is behind the head take more
            return Tiles(rows, 32, 8, 2)
        return Tiles(rows, 32, 4, 2 if head_dim > 128 else 4)
    return Tiles(rows, 32 if head_dim > 128 else 64, 4, 2 if head_dim > 128 else 3)


def invariant_tiles(head_dim: int, group: int, query_bytes: int, cache_bytes: int) -> Tiles:
    """For `batch_invariant`: the same for every step, so that a product's sums are in the same order. 64 rows are what
    Hopper's matrix instructions want; a decode row leaves most of them empty, and still waits for memory."""
    if query_bytes == 4:
        return Tiles(max(16, next_power_of_two(group)), 32, 4, 2)
    if head_dim > 128:
        rows = max(16, next_power_of_two(group))
        # Widening takes registers, and the compiler gives threads of 8 warps too few.
        return Tiles(rows, 32, 4, 2) if cache_bytes == 1 else Tiles(rows, 16, 8, 2)
    return Tiles(max(64, next_power_of_two(group)), 32, 8, 2)
