"""Attention that reads keys and values where their blocks lie."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_kernels.ops import kv_cache_shape, paged_attention, store_kv


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """Where the tokens of one flat batch live in the cache. Rows are chunks, then decodes."""

    block_tables: Tensor  # [rows, longest table] int32: block ids in logical order
    query_starts: Tensor  # [rows + 1] int32: row r's tokens are query_starts[r] … query_starts[r + 1]
    context_lengths: Tensor  # [rows] int32: tokens that each row's last one sees, itself included


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's keys and values of all blocks, in the kernels' layout."""

    keys: Tensor
    values: Tensor


class PagedAttention:
    """The backend of headrace_kernels: C++ on a CPU, plain torch elsewhere."""

    def __init__(self, num_kv_heads: int, head_dim: int, block_size: int, device: torch.device) -> None:
        """`block_size` in tokens, one that `kv_cache_shape` accepts."""
        self.block_size = block_size
        self._heads = (num_kv_heads, head_dim)
        self._device = device

    def allocate(self, num_blocks: int, dtype: torch.dtype) -> LayerCache:
        """Uninitialised: on a CPU the pages are taken when they are first written. Empty for a rank without heads."""
        shape = kv_cache_shape(num_blocks, self.block_size, *self._heads)
        keys, values = (torch.empty(shape, dtype=dtype, device=self._device) for _ in range(2))
        return LayerCache(keys, values)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cache: LayerCache,
        batch: AttentionBatch,
        scale: float,
        sliding_window: int | None,
    ) -> Tensor:
        """Store the step's keys and values, then attend. query [tokens, heads, head_dim] → the same shape."""
        store_kv(
            key,
            value,
            cache.keys,
            cache.values,
            batch.block_tables,
            batch.query_starts,
            batch.context_lengths,
        )
        return paged_attention(
            query,
            cache.keys,
            cache.values,
            batch.block_tables,
            batch.query_starts,
            batch.context_lengths,
            scale,
            sliding_window,
        )
