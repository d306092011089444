"""Which part of a model each rank holds. Pure arithmetic, the same on every rank; no torch.

Attention is split by whole KV heads, because a KV head's cache has one owner, and query heads go with the KV head that
they read. The feed-forward layer is split by columns, embedding and head by tokens of the vocabulary.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from headrace_server.errors import ConfigError
from headrace_server.models.config import ModelConfig

INNER_UNIT, BLOCKS_INNER_UNIT = 128, 256
"""Columns of the feed-forward layer that stay together, at most: as many as a group of a quantized checkpoint or a tile
of a product has; as many as the largest of a GGUF's blocks."""


@dataclass(frozen=True, slots=True)
class Split:
    """One rank's part of a model."""

    rank: int
    world_size: int
    query_heads: range
    kv_heads: range  # empty: this rank has no part in attention
    inner: range  # columns of the feed-forward layer
    vocabulary: range  # token ids
    vocabulary_widths: tuple[int, ...]  # of each rank, the first one's the most

    @classmethod
    def whole(cls, config: ModelConfig) -> Self:
        """Of a rank that is alone."""
        return cls.of(config, 0, 1)

    @classmethod
    def of(cls, config: ModelConfig, rank: int, world_size: int, inner_unit: int = INNER_UNIT) -> Self:
        """Raises ConfigError if the model has too few columns or tokens to give each rank one."""
        for name, size in (("vocab_size", config.vocab_size), ("intermediate_size", config.intermediate_size)):
            if size < world_size:
                raise ConfigError(
                    f"{world_size} shards are more than the model's {name} {size}; use --num-shard {size} or less"
                )
        vocabulary = even_parts(config.vocab_size, world_size)
        query_heads, kv_heads = split_heads(config.num_heads, config.num_kv_heads, world_size)[rank]
        return cls(
            rank=rank,
            world_size=world_size,
            query_heads=query_heads,
            kv_heads=kv_heads,
            inner=split_inner(config.intermediate_size, world_size, inner_unit)[rank],
            vocabulary=vocabulary[rank],
            vocabulary_widths=tuple(map(len, vocabulary)),
        )

    @property
    def has_attention(self) -> bool:
        return len(self.query_heads) > 0


def even_parts(total: int, parts: int, start: int = 0) -> list[range]:
    """`start` … `start + total` in consecutive parts whose lengths differ by at most one, the longer ones first."""
    bounds = [start + total // parts * part + min(part, total % parts) for part in range(parts + 1)]
    return [range(begin, end) for begin, end in pairwise(bounds)]


def split_heads(num_heads: int, num_kv_heads: int, world_size: int) -> list[tuple[range, range]]:
    """(query heads, KV heads) of each rank. num_heads is a multiple of num_kv_heads.

    At least as many KV heads as ranks: each is one rank's. Fewer, and they divide the ranks: each is held by several,
    which share its query heads; who gets no query head holds no KV head either. Fewer otherwise: the last ranks hold
    none.

    9 query and 3 KV heads over 2 ranks: (0…6, 0…2), (6…9, 2…3). Over 6: (0…2, 0…1), (2…3, 0…1), (3…5, 1…2), …
    """
    group = num_heads // num_kv_heads
    if num_kv_heads < world_size and world_size % num_kv_heads == 0:
        return _replicated(group, num_kv_heads, world_size // num_kv_heads)
    return [(range(part.start * group, part.stop * group), part) for part in even_parts(num_kv_heads, world_size)]


def _replicated(group: int, num_kv_heads: int, replicas: int) -> list[tuple[range, range]]:
    shares = []
    for kv_head in range(num_kv_heads):
        for queries in even_parts(group, replicas, start=kv_head * group):
            shares.append((queries, range(kv_head, kv_head + 1 if queries else kv_head)))
    return shares


def split_inner(size: int, world_size: int, unit: int = INNER_UNIT) -> list[range]:
    """Columns of the feed-forward layer, in units of `unit`, a power of two, or of as many as the size and the number
    of ranks allow."""
    while size % unit or size // unit < world_size:
        unit //= 2
    return [range(part.start * unit, part.stop * unit) for part in even_parts(size // unit, world_size)]
