"""Attention by headrace_kernels."""

import torch
from torch import Tensor

from headrace_kernels.ops import (
    Backend,
    DecodeWorkspace,
    choose,
    kv_cache_shape,
    paged_attention,
    rotate_and_store_kv,
)
from headrace_server.attention.interface import AttentionBatch, HeadCounts, LayerAttention, LayerCache


class PagedAttention:
    """An `AttentionBackend`: C++ on a CPU, Triton on a GPU, or the definitions in plain torch anywhere."""

    def __init__(
        self,
        heads: HeadCounts,
        block_size: int,
        device: torch.device,
        kernels: Backend | None = None,
        batch_invariant: bool = False,
    ) -> None:
        """`block_size` in tokens, one that `kv_cache_shape` accepts. `kernels` None: the fastest for each call.
        `batch_invariant`: of `paged_attention`."""
        self.block_size = block_size
        self._heads = heads
        self._device = device
        self._kernels = kernels
        self._batch_invariant = batch_invariant
        self._panels = kernels != "triton" and device.type == "cpu"
        self._workspace: DecodeWorkspace | None = None
        self.name: str = kernels or choose(None, torch.empty(0, device=device))

    def allocate(self, num_blocks: int, dtype: torch.dtype) -> LayerCache:
        """On a CPU the pages are taken when they are first written."""
        shape = kv_cache_shape(num_blocks, self.block_size, self._heads.num_kv_heads, self._heads.head_dim)
        keys, values = (torch.empty(shape, dtype=dtype, device=self._device) for _ in range(2))
        return LayerCache(keys, values)

    def prepare(self, max_rows: int, max_context: int) -> None:
        if self.name in ("cpu", "reference"):
            return
        heads = self._heads
        whole_blocks = -(-max_context // self.block_size) * self.block_size  # as far as a block table may reach
        self._workspace = DecodeWorkspace(max_rows, whole_blocks, heads.num_heads, heads.head_dim, self._device)

    def __call__(
        self, qkv: Tensor, layer: LayerAttention, cos_sin: Tensor | None, cache: LayerCache, batch: AttentionBatch
    ) -> Tensor:
        k_scale, v_scale = _scales(layer, cache)
        query = rotate_and_store_kv(
            qkv,
            layer.num_heads,
            cache.keys,
            cache.values,
            batch.block_tables,
            batch.query_starts,
            batch.context_lengths,
            norms=layer.norms,
            cos_sin=cos_sin,
            k_scale=k_scale,
            v_scale=v_scale,
            panels=self._panels,
            backend=self._kernels,
        )
        return self._attend(query, layer, cache, batch, (k_scale, v_scale)).flatten(1)

    def _attend(
        self,
        query: Tensor,
        layer: LayerAttention,
        cache: LayerCache,
        batch: AttentionBatch,
        scales: tuple[float, float],
    ) -> Tensor:
        """query [tokens, heads, head_dim] → the same shape, contiguous. `scales`: of the cache's keys and values."""
        k_scale, v_scale = scales
        return paged_attention(
            query,
            cache.keys,
            cache.values,
            batch.block_tables,
            batch.query_starts,
            batch.context_lengths,
            layer.scale,
            layer.sliding_window,
            k_scale=k_scale,
            v_scale=v_scale,
            panels=self._panels,
            decode=batch.most_queries == 1,
            workspace=self._workspace,
            backend=self._kernels,
            batch_invariant=self._batch_invariant,
        )


def _scales(layer: LayerAttention, cache: LayerCache) -> tuple[float, float]:
    """(keys', values'): e4m3's alone, for its range is what they were made for."""
    return (layer.k_scale, layer.v_scale) if cache.keys.dtype is torch.float8_e4m3fn else (1.0, 1.0)
