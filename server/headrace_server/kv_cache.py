"""The pool of KV blocks: one pair of tensors a layer, laid out by the attention backend."""

from dataclasses import dataclass

import torch

from headrace_server.attention.paged import LayerCache, PagedAttention
from headrace_server.errors import ProtocolError
from headrace_server.step import Ints


@dataclass(frozen=True, slots=True)
class KvPool:
    """Blocks 0 … num_blocks − 1. The router decides what they hold; nothing here knows whose they are."""

    layers: tuple[LayerCache, ...]
    num_blocks: int

    def copy_blocks(self, pairs: Ints) -> None:
        """Make the second block of each pair [n, 2] a copy of the first. Raises ProtocolError for unknown blocks."""
        if len(pairs) == 0:
            return
        if pairs.max() >= self.num_blocks:
            raise ProtocolError(f"a copy names block {pairs.max()}, but the pool has {self.num_blocks}")
        sources, targets = torch.from_numpy(pairs.T.copy()).to(self.layers[0].keys.device)
        for layer in self.layers:
            layer.keys[targets] = layer.keys[sources]
            layer.values[targets] = layer.values[sources]


def allocate_pool(backend: PagedAttention, num_layers: int, num_blocks: int, dtype: torch.dtype) -> KvPool:
    """Reserve the pool. On a CPU it takes memory page by page, as blocks are first written."""
    return KvPool(tuple(backend.allocate(num_blocks, dtype) for _ in range(num_layers)), num_blocks)
