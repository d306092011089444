"""The definitions of `copy_blocks`, `pack_blocks` and `unpack_blocks` in plain torch."""

from collections.abc import Sequence

import torch
from torch import Tensor


def copy_blocks(caches: Sequence[Tensor], pairs: Tensor) -> None:
    """See `headrace_kernels.copy_blocks`."""
    for cache in caches:
        cache[pairs[:, 1]] = cache[pairs[:, 0]]


def pack_blocks(caches: Sequence[Tensor], blocks: Tensor, packed: Tensor) -> None:
    """See `headrace_kernels.pack_blocks`."""
    for index, cache in enumerate(caches):
        packed[:, index] = _rows(cache)[blocks]


def unpack_blocks(packed: Tensor, caches: Sequence[Tensor], blocks: Tensor) -> None:
    """See `headrace_kernels.unpack_blocks`."""
    for index, cache in enumerate(caches):
        _rows(cache)[blocks] = packed[:, index]


def _rows(cache: Tensor) -> Tensor:
    """[num_blocks, block_bytes] uint8, the same memory."""
    return cache.view(len(cache), -1).view(torch.uint8)
