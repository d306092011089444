"""How the paged KV cache lies in memory. Only this file and the kernels know it.

A *block* holds `block_size` consecutive positions of one sequence. A *slot* is one position in the cache:
block * block_size + offset. Keys and values are two tensors of the same shape, one pair a layer.
"""

DEFAULT_BLOCK_SIZE = {"cpu": 32, "cuda": 16}
"""Tokens a block, by device type. On the CPU a (block, head) of 64 bfloat16 is then exactly one 4 KiB page."""

MIN_BLOCK_SIZE = 8
"""Kernels read keys in groups of eight; such a group must lie within one block."""


def default_block_size(device_type: str) -> int:
    """Tokens a block when the user doesn't say: 32 on the CPU, 16 elsewhere."""
    return DEFAULT_BLOCK_SIZE.get(device_type, 16)


def kv_cache_shape(num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int) -> tuple[int, int, int, int]:
    """The shape of a layer's `k_cache`, and of its `v_cache`: [num_blocks, num_kv_heads, block_size, head_dim].

    The head comes before the offset, so what attention reads for one (block, head) is one contiguous piece, and a
    rank's KV heads of a block are contiguous too.
    """
    if not is_block_size(block_size):
        raise ValueError(f"block_size {block_size}: must be a power of two, at least {MIN_BLOCK_SIZE}")
    return (num_blocks, num_kv_heads, block_size, head_dim)


def is_block_size(block_size: int) -> bool:
    """Whether the kernels can work with blocks of this many tokens."""
    return block_size >= MIN_BLOCK_SIZE and block_size & (block_size - 1) == 0
