"""Moving whole KV blocks: within the pool of all layers, and out of it and back."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import ArgumentError, expect
from headrace_kernels.copy_blocks import reference


def cache_pointers(caches: Sequence[Tensor]) -> Tensor:
    """[len(caches)] int64 on the caches' device: where each begins. Made once for a pool; that it reads a list from the
    host keeps it out of captured graphs."""
    return torch.tensor([cache.data_ptr() for cache in caches], dtype=torch.int64, device=caches[0].device)


def copy_blocks(caches: Sequence[Tensor], pointers: Tensor, pairs: Tensor, *, backend: Backend | None = None) -> None:
    """Copy blocks in every cache, in place: copy on write of a block that sequences shared.

    caches    [num_blocks, ...] each, of one shape and type, contiguous: keys and values of all layers
    pointers  `cache_pointers(caches)`
    pairs     [num_pairs, 2] int64: source and target; on a GPU nobody looks whether they are in the pool

        for every cache and pair:  cache[target] = cache[source]

    No target may be another pair's source or target: all pairs are copied at once, in one launch.
    """
    _check(caches, pointers)
    expect(pairs, "pairs", (None, 2), torch.int64, caches[0])
    if choose(backend, caches[0], cpu=False) == "triton":
        from headrace_kernels.copy_blocks import triton

        triton.copy_blocks(caches, pointers, pairs.contiguous())
    else:
        reference.copy_blocks(caches, pairs)


def pack_blocks(
    caches: Sequence[Tensor], pointers: Tensor, blocks: Tensor, *, backend: Backend | None = None
) -> Tensor:
    """Copy some blocks of all caches into one piece of memory, for one transfer a block instead of one a cache.

    blocks   [count] int64
    returns  [count, len(caches), block_bytes] uint8: packed[i, c] holds the bytes of caches[c][blocks[i]]
    """
    _check(caches, pointers)
    expect(blocks, "blocks", (None,), torch.int64, caches[0])
    packed = caches[0].new_empty((len(blocks), len(caches), block_bytes(caches)), dtype=torch.uint8)
    if choose(backend, caches[0], cpu=False) == "triton":
        from headrace_kernels.copy_blocks import triton

        triton.pack_blocks(caches, pointers, blocks.contiguous(), packed)
    else:
        reference.pack_blocks(caches, blocks, packed)
    return packed


def unpack_blocks(
    packed: Tensor, caches: Sequence[Tensor], pointers: Tensor, blocks: Tensor, *, backend: Backend | None = None
) -> None:
    """The way back: the bytes of packed[i, c] become caches[c][blocks[i]]. No block may be named twice."""
    _check(caches, pointers)
    expect(blocks, "blocks", (None,), torch.int64, caches[0])
    expect(packed, "packed", (len(blocks), len(caches), block_bytes(caches)), torch.uint8, caches[0])
    if choose(backend, caches[0], cpu=False) == "triton":
        from headrace_kernels.copy_blocks import triton

        triton.unpack_blocks(packed.contiguous(), caches, pointers, blocks.contiguous())
    else:
        reference.unpack_blocks(packed, caches, blocks)


def block_bytes(caches: Sequence[Tensor]) -> int:
    """Bytes of a block in one cache."""
    return caches[0].numel() // max(len(caches[0]), 1) * caches[0].element_size()


def _check(caches: Sequence[Tensor], pointers: Tensor) -> None:
    first = caches[0]
    for index, cache in enumerate(caches):
        expect(cache, f"caches[{index}]", first.shape, first.dtype, first)
        if not cache.is_contiguous():
            raise ArgumentError(f"caches[{index}]: expected contiguous, got strides {list(cache.stride())}")
    expect(pointers, "pointers", (len(caches),), torch.int64, first)
    if block_bytes(caches) % 8:
        raise ArgumentError(f"caches: blocks of {block_bytes(caches)} bytes; expected a multiple of 8")
