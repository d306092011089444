"""Grouped-query attention: one fused projection, rotation, paged attention, output projection. Of a rank's heads, if it
has some."""

from dataclasses import dataclass

import torch
from torch import Tensor, split_with_sizes

from headrace_kernels.ops import QuantizedRows
from headrace_server.attention.paged import AttentionBatch, LayerCache, PagedAttention
from headrace_server.distributed.collective import Collective
from headrace_server.layers.norm import RmsNorm
from headrace_server.layers.rotary import RotaryEmbedding
from headrace_server.quantization.method import LinearLayer


@dataclass(frozen=True, slots=True)
class Attention:
    """x [tokens, hidden_size] → the same shape."""

    qkv: LinearLayer  # → [tokens, (heads + 2 · kv_heads) · head_dim]
    output: LinearLayer
    backend: PagedAttention
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary: RotaryEmbedding | None  # None: positions are not embedded in this layer
    sliding_window: int | None
    query_norm: RmsNorm | None  # over each head
    key_norm: RmsNorm | None

    @property
    def rows_dtype(self) -> torch.dtype | None:
        """What x is rounded to; see `LinearLayer`."""
        return self.qkv.rows_dtype

    def __call__(
        self, x: Tensor | QuantizedRows, positions: Tensor, cache: LayerCache, batch: AttentionBatch
    ) -> Tensor:
        heads = self.qkv(x).unflatten(1, (-1, self.head_dim))
        query, key, value = split_with_sizes(heads, (self.num_heads, self.num_kv_heads, self.num_kv_heads), dim=1)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.rotary is not None:
            self.rotary(query, key, positions)
        scale = self.head_dim**-0.5
        attended = self.backend(query, key, value, cache, batch, scale, self.sliding_window)
        return self.output(attended.flatten(1))


@dataclass(frozen=True, slots=True)
class NoAttention:
    """What a rank without heads adds to the others' attention: nothing."""

    collective: Collective
    rows_dtype: torch.dtype | None = None

    def __call__(
        self, x: Tensor | QuantizedRows, positions: Tensor, cache: LayerCache, batch: AttentionBatch
    ) -> Tensor:
        assert isinstance(x, Tensor)  # rows_dtype is None
        return self.collective.all_reduce(x.new_zeros(x.shape))
