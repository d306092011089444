"""Attention by FlashAttention 3, the Hopper kernels of flash-attention; keys and values are stored by our own."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from headrace_server.attention.interface import AttentionBatch, HeadCounts, LayerAttention, LayerCache
from headrace_server.attention.paged import PagedAttention

MODULE = "flash_attn_interface"
MOST_HEAD_DIM = 256


class FlashAttention3(PagedAttention):
    """It reads pages of [block_size, kv_heads, head_dim] with any strides: ours, seen with two axes exchanged.

    It needs no plan on the host, so decode steps can be recorded. `most_queries` shapes its launch.
    """

    def __init__(self, heads: HeadCounts, block_size: int, device: torch.device) -> None:
        """Raises ImportError if the library is missing."""
        super().__init__(heads, block_size, device, "triton")
        self.name = "fa3"
        self._library: Any = import_module(MODULE)

    def prepare(self, max_rows: int, max_context: int) -> None:
        """The library has what it needs."""

    def _attend(
        self,
        query: Tensor,
        layer: LayerAttention,
        cache: LayerCache,
        batch: AttentionBatch,
        scales: tuple[float, float],
    ) -> Tensor:
        head_dim = query.shape[2]
        keys, values = (part[..., :head_dim].transpose(1, 2) for part in (cache.keys, cache.values))
        before = -1 if layer.sliding_window is None else layer.sliding_window - 1
        return self._library.flash_attn_with_kvcache(
            query,
            keys,
            values,
            cache_seqlens=batch.context_lengths,
            page_table=batch.block_tables,
            cu_seqlens_q=batch.query_starts,
            max_seqlen_q=batch.most_queries,
            softmax_scale=layer.scale,
            causal=True,
            window_size=(before, 0),
        )
