"""Grouped-query attention: one fused projection, rotation, paged attention, output projection. Of a rank's heads, if it
has some."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_kernels.ops import QuantizedRows
from headrace_server.attention.interface import AttentionBackend, AttentionBatch, LayerAttention, LayerCache
from headrace_server.distributed.collective import Collective
from headrace_server.layers.rotary import RotaryEmbedding
from headrace_server.quantization.method import LinearLayer


@dataclass(frozen=True, slots=True)
class Attention:
    """x [tokens, hidden_size] → the same shape."""

    qkv: LinearLayer  # → [tokens, (heads + 2 · kv_heads) · head_dim]
    output: LinearLayer
    backend: AttentionBackend
    layer: LayerAttention
    rotary: RotaryEmbedding | None  # None: positions are not embedded in this layer

    @property
    def rows_dtype(self) -> torch.dtype | None:
        """What x is rounded to; see `LinearLayer`."""
        return self.qkv.rows_dtype

    def __call__(self, x: Tensor | QuantizedRows, cache: LayerCache, batch: AttentionBatch) -> Tensor:
        cos_sin = None if self.rotary is None else self.rotary.cos_sin
        return self.output(self.backend(self.qkv(x), self.layer, cos_sin, cache, batch))


@dataclass(frozen=True, slots=True)
class NoAttention:
    """What a rank without heads adds to the others' attention: nothing."""

    collective: Collective
    rows_dtype: torch.dtype | None = None

    def __call__(self, x: Tensor | QuantizedRows, cache: LayerCache, batch: AttentionBatch) -> Tensor:
        assert isinstance(x, Tensor)  # rows_dtype is None
        return self.collective.all_reduce(x.new_zeros(x.shape))
