"""Attention of prompts by FlashInfer; keys and values are stored, and decode rows alone attended, by our own kernels.

FlashInfer plans a batch on the host before it runs. A step with prompt chunks has time for that; a decode step that was
recorded doesn't come back to the host, so there our kernels stay. Both read the same pages, [kv_heads, block_size,
head_dim], which FlashInfer calls HND.
"""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from headrace_server.attention.interface import AttentionBatch, HeadCounts, LayerAttention, LayerCache
from headrace_server.attention.paged import PagedAttention

MODULE = "flashinfer"
HEAD_DIMS = (64, 128, 256)
"""Those that it has kernels for."""

WORKSPACE_BYTES = 128 * 1024 * 1024
"""What its documentation says is enough."""


class FlashInfer(PagedAttention):
    """Layers with the same window share a plan, which the first of them makes."""

    def __init__(self, heads: HeadCounts, block_size: int, device: torch.device) -> None:
        """Raises ImportError if the library is missing."""
        super().__init__(heads, block_size, device, "triton")
        self.name = "flashinfer"
        self._library: Any = import_module(MODULE)
        self._space: Tensor | None = None
        self._wrappers: dict[int, Any] = {}  # by window
        self._planned: dict[int, AttentionBatch] = {}  # what each wrapper is ready for

    def prepare(self, max_rows: int, max_context: int) -> None:
        super().prepare(max_rows, max_context)
        self._space = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=self._device)
        self._wrappers, self._planned = {}, {}

    def _attend(
        self,
        query: Tensor,
        layer: LayerAttention,
        cache: LayerCache,
        batch: AttentionBatch,
        scales: tuple[float, float],
    ) -> Tensor:
        if batch.most_queries == 1:
            return super()._attend(query, layer, cache, batch, scales)
        window = -1 if layer.sliding_window is None else layer.sliding_window - 1
        if window not in self._wrappers:
            self._wrappers[window] = self._library.BatchPrefillWithPagedKVCacheWrapper(self._space, "HND")
        wrapper = self._wrappers[window]
        if self._planned.get(window) is not batch:
            self._plan(wrapper, window, query, layer, cache, batch)
            self._planned[window] = batch
        return wrapper.run(query, (cache.keys, cache.values))

    def _plan(
        self,
        wrapper: Any,
        window: int,
        query: Tensor,
        layer: LayerAttention,
        cache: LayerCache,
        batch: AttentionBatch,
    ) -> None:
        """Its form of block tables: all rows' blocks in one list, where each row's begin, tokens in the last one."""
        counts = (batch.context_lengths + self.block_size - 1) // self.block_size
        starts = torch.zeros_like(batch.query_starts)
        torch.cumsum(counts, 0, dtype=torch.int32, out=starts[1:])
        columns = torch.arange(batch.block_tables.shape[1], device=counts.device)
        wrapper.plan(
            batch.query_starts,
            starts,
            batch.block_tables[columns < counts[:, None]],
            (batch.context_lengths - 1) % self.block_size + 1,
            layer.num_heads,
            self._heads.num_kv_heads,
            self._heads.head_dim,
            self.block_size,
            causal=True,
            sm_scale=layer.scale,
            window_left=window,
            q_data_type=query.dtype,
            kv_data_type=cache.keys.dtype,
        )
