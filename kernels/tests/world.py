"""A paged cache with sequences in it, and attention asked of it in different ways."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headrace_kernels.ops import kv_cache_shape, paged_attention, store_kv


@dataclass(frozen=True)
class Shape:
    """Sizes of an attention layer and of its cache."""

    num_heads: int = 9
    num_kv_heads: int = 3
    head_dim: int = 64
    block_size: int = 32
    dtype: torch.dtype = torch.float32
    cache_dtype: torch.dtype | None = None  # None: dtype
    panels: bool = True
    k_scale: float = 1.0
    v_scale: float = 1.0


@dataclass(frozen=True)
class Sequence:
    """All queries, keys and values of one sequence: [length, heads, head_dim]."""

    query: Tensor
    key: Tensor
    value: Tensor

    def __len__(self) -> int:
        return self.query.shape[0]


class World:
    """Sequences whose keys and values lie in blocks that a seeded shuffle chose; the other blocks hold NaN."""

    def __init__(self, shape: Shape, lengths: list[int], seed: int = 7) -> None:
        self.shape = shape
        self.generator = torch.Generator().manual_seed(seed)
        self.sequences = [self._sequence(length) for length in lengths]
        self.place(seed)

    def place(self, seed: int) -> None:
        """Put every sequence's keys and values into freshly shuffled blocks of a fresh cache."""
        shape = self.shape
        counts = [-(-len(s) // shape.block_size) for s in self.sequences]
        order = torch.randperm(sum(counts) + 5, generator=torch.Generator().manual_seed(seed))
        cache_shape = kv_cache_shape(len(order), shape.block_size, shape.num_kv_heads, shape.head_dim)
        cache_dtype = shape.cache_dtype or shape.dtype
        self.k_cache = torch.full(cache_shape, float("nan")).to(cache_dtype)
        self.v_cache = torch.full(cache_shape, float("nan")).to(cache_dtype)
        self.blocks = [blocks.to(torch.int32) for blocks in order[: sum(counts)].split(counts)]
        for sequence, blocks in zip(self.sequences, self.blocks, strict=True):
            store_kv(
                sequence.key,
                sequence.value,
                self.k_cache,
                self.v_cache,
                blocks[None],
                torch.tensor([0, len(sequence)], dtype=torch.int32),
                torch.tensor([len(sequence)], dtype=torch.int32),
                k_scale=shape.k_scale,
                v_scale=shape.v_scale,
                panels=shape.panels,
                backend=None if shape.panels else "reference",
            )

    def attend(
        self,
        rows: list[tuple[int, int, int]],
        window: int | None = None,
        backend: str | None = "cpu",
        **options: Any,
    ) -> Tensor:
        """Attention of a batch; a row is (sequence, first position, end position) of its queries."""
        lengths = torch.tensor([0] + [end - start for _, start, end in rows])
        most_blocks = max((len(self.blocks[s]) for s, _, _ in rows), default=0)
        tables = torch.full((len(rows), most_blocks), -1, dtype=torch.int32)
        for table, (s, _, _) in zip(tables, rows, strict=True):
            table[: len(self.blocks[s])] = self.blocks[s]
        queries = [self.sequences[s].query[start:end] for s, start, end in rows]
        empty = torch.empty(0, self.shape.num_heads, self.shape.head_dim, dtype=self.shape.dtype)
        return paged_attention(
            torch.cat([*queries, empty]),
            self.k_cache,
            self.v_cache,
            tables,
            lengths.cumsum(0).to(torch.int32),
            torch.tensor([end for _, _, end in rows], dtype=torch.int32),
            self.shape.head_dim**-0.5,
            window,
            backend=backend,
            k_scale=self.shape.k_scale,
            v_scale=self.shape.v_scale,
            panels=self.shape.panels,
            **options,
        )

    def _sequence(self, length: int) -> Sequence:
        def random(heads: int) -> Tensor:
            values = torch.randn(length, heads, self.shape.head_dim, generator=self.generator) * 1.5
            return values.to(self.shape.dtype)

        return Sequence(random(self.shape.num_heads), random(self.shape.num_kv_heads), random(self.shape.num_kv_heads))
