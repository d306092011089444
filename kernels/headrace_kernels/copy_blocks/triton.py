"""The Triton kernels that move KV blocks. Bytes move as words of 8, whatever the cache's type."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.launch import launch

BLOCK = 2048
"""Words of a program: 16 KiB, half of what 8 KV heads of 128 bfloat16 take in a block of 16 tokens."""


def copy_blocks(caches: Sequence[Tensor], pointers: Tensor, pairs: Tensor) -> None:
    """See `headrace_kernels.copy_blocks`; the arguments are checked and contiguous."""
    words = _words(caches)
    grid = (len(pairs), len(caches), triton.cdiv(words, BLOCK))
    launch(_copy_blocks_kernel, grid, pointers, pairs, WORDS=words, BLOCK=BLOCK, num_warps=8)


def pack_blocks(caches: Sequence[Tensor], pointers: Tensor, blocks: Tensor, packed: Tensor) -> None:
    """See `headrace_kernels.pack_blocks`; the arguments are checked and contiguous."""
    _pack(packed, caches, pointers, blocks, unpack=False)


def unpack_blocks(packed: Tensor, caches: Sequence[Tensor], pointers: Tensor, blocks: Tensor) -> None:
    """See `headrace_kernels.unpack_blocks`; the arguments are checked and contiguous."""
    _pack(packed, caches, pointers, blocks, unpack=True)


def _pack(packed: Tensor, caches: Sequence[Tensor], pointers: Tensor, blocks: Tensor, *, unpack: bool) -> None:
    words = _words(caches)
    launch(
        _pack_blocks_kernel,
        (len(blocks), len(caches), triton.cdiv(words, BLOCK)),
        packed.view(torch.int64),
        pointers,
        blocks,
        NUM_CACHES=len(caches),
        WORDS=words,
        BLOCK=BLOCK,
        UNPACK=unpack,
        num_warps=8,
    )


def _words(caches: Sequence[Tensor]) -> int:
    return caches[0][:1].numel() * caches[0].element_size() // 8


@triton.jit
def _copy_blocks_kernel(pointers_ptr, pairs_ptr, WORDS: tl.constexpr, BLOCK: tl.constexpr):
    pair_ptr = pairs_ptr + 2 * tl.program_id(0)
    cache_ptr = tl.load(pointers_ptr + tl.program_id(1)).to(tl.pointer_type(tl.int64))
    words = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    # Blocks are int64, so offsets into a pool beyond 2^31 words are, too.
    values = tl.load(cache_ptr + tl.load(pair_ptr) * WORDS + words, mask=words < WORDS)
    tl.store(cache_ptr + tl.load(pair_ptr + 1) * WORDS + words, values, mask=words < WORDS)


@triton.jit
def _pack_blocks_kernel(
    packed_ptr,
    pointers_ptr,
    blocks_ptr,
    NUM_CACHES: tl.constexpr,
    WORDS: tl.constexpr,
    BLOCK: tl.constexpr,
    UNPACK: tl.constexpr,
):
    place, cache = tl.program_id(0).to(tl.int64), tl.program_id(1)
    words = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    cache_ptr = tl.load(pointers_ptr + cache).to(tl.pointer_type(tl.int64))
    here_ptr = cache_ptr + tl.load(blocks_ptr + place) * WORDS + words
    there_ptr = packed_ptr + (place * NUM_CACHES + cache) * WORDS + words
    if UNPACK:
        tl.store(here_ptr, tl.load(there_ptr, mask=words < WORDS), mask=words < WORDS)
    else:
        tl.store(there_ptr, tl.load(here_ptr, mask=words < WORDS), mask=words < WORDS)
