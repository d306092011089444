"""What a model needs of whoever computes attention."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_kernels.ops import HeadNorms


class HostBatch(Protocol):
    """The numbers of an `AttentionBatch`, of the same shapes."""

    @property
    def block_tables(self) -> NDArray[np.int32]: ...

    @property
    def query_starts(self) -> NDArray[np.int32]: ...

    @property
    def context_lengths(self) -> NDArray[np.int32]: ...


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """Where the tokens of one flat batch live in the cache. Rows are chunks, then decodes; each has a token."""

    block_tables: Tensor  # [rows, longest table] int32: block ids in logical order
    query_starts: Tensor  # [rows + 1] int32: row r's tokens are query_starts[r] … query_starts[r + 1]
    context_lengths: Tensor  # [rows] int32: tokens that each row's last one sees, itself included
    most_queries: int  # tokens of the row that has the most
    on_host: HostBatch | None = None  # for libraries that plan there; None in recorded steps, of which it knows nothing


@dataclass(frozen=True, slots=True)
class LayerCache:
    """One layer's keys and values of all blocks, in the backend's layout."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class HeadCounts:
    """Of a rank."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """What one layer's attention is, beside its projections."""

    num_heads: int
    scale: float
    sliding_window: int | None
    norms: HeadNorms | None
    k_scale: float = 1.0  # what keys of a cache in float8 e4m3 are multiplied with; other caches need no scale
    v_scale: float = 1.0  # the same of values


class AttentionBackend(Protocol):
    """Keys, values and attention of all layers; their caches are its own to lay out."""

    name: str  # as --attention-backend names it
    block_size: int  # tokens

    def allocate(self, num_blocks: int, dtype: torch.dtype) -> LayerCache:
        """One layer's cache, uninitialised."""
        ...

    def prepare(self, max_rows: int, max_context: int) -> None:
        """Make what steps of so many rows, of sequences of so many tokens, need beside the caches."""
        ...

    def __call__(
        self, qkv: Tensor, layer: LayerAttention, cos_sin: Tensor | None, cache: LayerCache, batch: AttentionBatch
    ) -> Tensor:
        """Normalise and rotate heads, store keys and values, attend.

        qkv [tokens, (heads + 2 · kv_heads) · head_dim], which is used up → [tokens, heads · head_dim]. cos_sin as
        `rotary_embedding` has it; None: no rotation.
        """
        ...
