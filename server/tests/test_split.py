"""Every part of a model is some rank's, once, whatever the numbers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import TinyModel

from headrace_server.errors import ConfigError
from headrace_server.models.registry import read_config
from headrace_server.models.split import Split, even_parts, split_heads, split_inner

counts = st.integers(1, 12)


def joined(parts: list[range]) -> list[int]:
    return [number for part in parts for number in part]


@given(total=st.integers(0, 1000), parts=counts, start=st.integers(0, 50))
def test_even_parts_are_consecutive_and_differ_by_at_most_one(total: int, parts: int, start: int) -> None:
    found = even_parts(total, parts, start)
    assert joined(found) == list(range(start, start + total))
    assert len(found) == parts
    assert all(len(later) <= len(earlier) <= len(later) + 1 for earlier, later in pairwise(found))


@given(kv_heads=counts, group=counts, ranks=counts)
def test_every_query_head_is_one_ranks_and_its_kv_head_is_there(kv_heads: int, group: int, ranks: int) -> None:
    split = split_heads(kv_heads * group, kv_heads, ranks)
    assert joined([queries for queries, _ in split]) == list(range(kv_heads * group))
    for queries, held in split:
        # A rank holds just the KV heads that its query heads read, and each of them serves as many query heads.
        assert sorted({query // group for query in queries}) == list(held)
        assert len(queries) % max(len(held), 1) == 0


@given(kv_heads=counts, group=counts, ranks=counts)
def test_kv_heads_are_held_once_unless_their_number_divides_the_ranks(kv_heads: int, group: int, ranks: int) -> None:
    split = split_heads(kv_heads * group, kv_heads, ranks)
    holders = [sum(head in held for _, held in split) for head in range(kv_heads)]
    replicas = ranks // kv_heads if ranks > kv_heads and ranks % kv_heads == 0 else 1
    assert holders == [min(replicas, group)] * kv_heads


@given(size=st.integers(1, 5000), ranks=counts)
def test_columns_stay_together_in_units_as_large_as_they_can_be(size: int, ranks: int) -> None:
    if size < ranks:
        return
    parts = split_inner(size, ranks)
    assert joined(parts) == list(range(size))
    assert all(parts)
    if size % 128 == 0 and size // 128 >= ranks:
        assert all(len(part) % 128 == 0 for part in parts)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "ranks", "expected"),
    [
        (9, 3, 3, ["0-3/0-1", "3-6/1-2", "6-9/2-3"]),
        (9, 3, 2, ["0-6/0-2", "6-9/2-3"]),
        (9, 3, 4, ["0-3/0-1", "3-6/1-2", "6-9/2-3", "none"]),
        (9, 3, 6, ["0-2/0-1", "2-3/0-1", "3-5/1-2", "5-6/1-2", "6-8/2-3", "8-9/2-3"]),
        (32, 8, 16, [f"{2 * rank}-{2 * rank + 2}/{rank // 2}-{rank // 2 + 1}" for rank in range(16)]),
        (2, 2, 4, ["0-1/0-1", "none", "1-2/1-2", "none"]),
    ],
)
def test_heads_are_split_as_the_documentation_says(heads: int, kv_heads: int, ranks: int, expected: list[str]) -> None:
    def name(queries: range, held: range) -> str:
        return f"{queries.start}-{queries.stop}/{held.start}-{held.stop}" if queries else "none"

    assert [name(*shares) for shares in split_heads(heads, kv_heads, ranks)] == expected


def test_more_ranks_than_the_model_has_parts_is_an_error_with_the_number(tiny_llama: TinyModel) -> None:
    config = read_config(tiny_llama.directory)
    with pytest.raises(
        ConfigError, match="98 shards are more than the model's vocab_size 97; use --num-shard 97 or less"
    ):
        Split.of(config, 0, 98)
