"""Copies within the pool of an 8B model's 32 layers."""

from collections.abc import Iterator, Sequence

import torch

from headrace_kernels.backends import Backend
from headrace_kernels.copy_blocks import block_bytes, cache_pointers, copy_blocks, pack_blocks
from headrace_kernels.gpu.cases import Case, random


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    layers, blocks, heads, head_dim = (2, 6, 1, 16) if tiny else (32, 64, 8, 128)
    shape = (blocks, heads, 16, head_dim)
    dtype = torch.float16 if tiny else torch.bfloat16
    caches = [random(*shape, device=device, dtype=dtype, seed=seed) for seed in range(2 * layers)]
    again = [cache.clone() for cache in caches]
    halves = torch.arange(blocks, device=device).view(2, -1)

    def copied(caches: Sequence[torch.Tensor], backend: Backend) -> Sequence[torch.Tensor]:
        copy_blocks(caches, cache_pointers(caches), halves.T.contiguous(), backend=backend)
        return caches

    moved = block_bytes(caches) * len(caches) * blocks
    yield Case("copy_blocks", lambda: copied(caches, "triton"), lambda: copied(again, "reference"), moved, 0, 0)
    yield Case(
        "copy_blocks: packed for a swap",
        lambda: pack_blocks(caches, cache_pointers(caches), halves[1], backend="triton"),
        lambda: pack_blocks(caches, cache_pointers(caches), halves[1], backend="reference"),
        moved,
        0,
        0,
    )
