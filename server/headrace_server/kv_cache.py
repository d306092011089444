"""The pool of KV blocks: one pair of tensors a layer, laid out by the attention backend."""

from dataclasses import dataclass

import torch

from headrace_server.attention.paged import LayerCache, PagedAttention


@dataclass(frozen=True, slots=True)
class KvPool:
    """Blocks 0 … num_blocks − 1. The router decides what they hold; nothing here knows whose they are."""

    layers: tuple[LayerCache, ...]
    num_blocks: int


def allocate_pool(backend: PagedAttention, num_layers: int, num_blocks: int, dtype: torch.dtype) -> KvPool:
    """Reserve the pool. On a CPU it takes memory page by page, as blocks are first written."""
    return KvPool(tuple(backend.allocate(num_blocks, dtype) for _ in range(num_layers)), num_blocks)
