"""How a kernel lays one row, of which it needs all elements at once, over a thread block."""

import triton


def row_shape(size: int) -> tuple[int, int]:
    """(elements of the block, warps) for rows of `size` elements: at most 32 elements a thread up to 16,384."""
    block = triton.next_power_of_2(size)
    return block, min(max(block // 512, 1), 16)
