"""The C++ attention against its definition."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from world import Shape, World

from headrace_kernels.kv_cache import write_values
from headrace_kernels.ops import ArgumentError, kv_cache_shape, paged_attention

TOLERANCE = {torch.float32: {"atol": 2e-5, "rtol": 2e-5}, torch.bfloat16: {"atol": 1.2e-2, "rtol": 8e-3}}
"""float32: sums of up to 8,192 weights in another order. bfloat16: each weight of a key is rounded, 2^-9 of values
up to 6, and the result once."""

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])


def assert_matches_reference(world, rows, window=None):
    got = world.attend(rows, window)
    expected = world.attend(rows, window, backend="reference")
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, **TOLERANCE[world.shape.dtype])


@BOTH
@pytest.mark.parametrize("head_dim", [8, 24, 64, 80, 96, 128, 256])
def test_every_head_size(head_dim, dtype, isa):
    world = World(Shape(head_dim=head_dim, dtype=dtype), [70, 45])
    assert_matches_reference(world, [(0, 69, 70), (1, 5, 45)])


@BOTH
@pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 7, 8, 16])
def test_every_group_of_query_heads(group, dtype, isa):
    world = World(Shape(num_heads=2 * group, num_kv_heads=2, dtype=dtype), [100, 33])
    assert_matches_reference(world, [(0, 20, 100), (1, 32, 33)])


@BOTH
@pytest.mark.parametrize("block_size", [16, 32, 64, 128])
def test_every_block_size(block_size, dtype, isa):
    world = World(Shape(block_size=block_size, dtype=dtype), [300, 31])
    assert_matches_reference(world, [(0, 250, 300), (1, 30, 31)])


@BOTH
@pytest.mark.parametrize("context", [1, 2, 7, 8, 31, 32, 33, 511, 512, 513, 1024, 1025, 2000, 8192])
def test_decode_rows_of_every_length(context, dtype):
    world = World(Shape(dtype=dtype), [context])
    assert_matches_reference(world, [(0, context - 1, context)])


@BOTH
@pytest.mark.parametrize("block_size", [16, 32])
@pytest.mark.parametrize("group", [1, 2, 5, 8, 16])
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_head_sizes_groups_and_blocks_together(head_dim, group, block_size, dtype):
    """Rows that decode, one of them its first position, and a chunk in the middle of a prompt."""
    world = World(Shape(group, 1, head_dim, block_size, dtype), [1, 530, 300])
    assert_matches_reference(world, [(0, 0, 1), (1, 529, 530), (2, 255, 295)])


@BOTH
@pytest.mark.parametrize(("head_dim", "group"), [(64, 1), (80, 4), (96, 16), (128, 8), (256, 2)], ids=str)
def test_long_contexts_of_every_head_size(head_dim, group, dtype):
    world = World(Shape(group, 1, head_dim, 16, dtype), [8192, 4097])
    assert_matches_reference(world, [(0, 8191, 8192), (1, 4090, 4097)])


@BOTH
def test_a_whole_prompt_longer_than_a_partition(dtype, isa):
    assert_matches_reference(World(Shape(dtype=dtype), [1100]), [(0, 0, 1100)])


@BOTH
@pytest.mark.parametrize("window", [1, 2, 8, 31, 33, 100, 600])
def test_sliding_windows(window, dtype, isa):
    assert_matches_reference(World(Shape(dtype=dtype), [40]), [(0, 0, 40)], window)
    assert_matches_reference(World(Shape(dtype=dtype), [700, 90]), [(0, 640, 700), (1, 89, 90)], window)


def test_blocks_that_a_window_has_left_are_not_read():
    world = World(Shape(), [200])
    expected = world.attend([(0, 199, 200)], window=40)
    world.k_cache[world.blocks[0][:5].long()] = float("nan")
    world.v_cache[world.blocks[0][:5].long()] = float("nan")
    world.blocks[0][:5] = -1
    assert torch.equal(world.attend([(0, 199, 200)], window=40), expected)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 600), st.integers(1, 80)), min_size=1, max_size=6),
    head_dim=st.sampled_from([16, 64, 80]),
    group=st.integers(1, 6),
    block_size=st.sampled_from([16, 32]),
    window=st.none() | st.integers(1, 700),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
@settings(max_examples=60)
def test_any_mixture_of_chunks_and_decode_rows(lengths, head_dim, group, block_size, window, dtype):
    world = World(Shape(2 * group, 2, head_dim, block_size, dtype), [length for length, _ in lengths])
    rows = [(i, max(0, length - queries), length) for i, (length, queries) in enumerate(lengths)]
    assert_matches_reference(world, rows, window)


def test_a_batch_without_rows_is_empty(isa):
    assert World(Shape(), [5]).attend([]).shape == (0, 9, 64)


def test_a_row_without_queries_is_skipped(isa):
    world = World(Shape(), [50, 60])
    assert torch.equal(world.attend([(0, 49, 50), (1, 7, 7), (1, 59, 60)]), world.attend([(0, 49, 50), (1, 59, 60)]))


def test_queries_may_be_columns_of_a_wider_matrix(isa):
    world = World(Shape(), [40])
    expected = world.attend([(0, 0, 40)])
    fused = torch.randn(40, 15 * 64)
    fused[:, : 9 * 64] = world.sequences[0].query.flatten(1)
    got = paged_attention(
        fused[:, : 9 * 64].view(40, 9, 64),
        world.k_cache,
        world.v_cache,
        world.blocks[0][None],
        torch.tensor([0, 40], dtype=torch.int32),
        torch.tensor([40], dtype=torch.int32),
        64**-0.5,
        backend="cpu",
    )
    assert torch.equal(got, expected)


def test_an_infinite_value_shows_where_it_is_seen_and_in_no_other_row(isa):
    """Queries before it whose tile it shares may be lost with it: weights of zero meet it. Their row fails anyway."""
    world = World(Shape(), [40, 40])
    expected = world.attend([(0, 0, 40), (1, 0, 40)])
    infinite = torch.full((1, 3, 64), float("inf"))
    write_values(world.v_cache, world.blocks[0][1:].long(), torch.tensor([7]), infinite)  # position 39 of the first row
    got = world.attend([(0, 0, 40), (1, 0, 40)])
    assert torch.equal(got[:32], expected[:32])
    assert not got[39].isfinite().any()
    assert torch.equal(got[40:], expected[40:])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(2, 5, 64)}, "query: 5 heads are not a multiple of k_cache's 2 KV heads"),
        ({"query": torch.zeros(2, 4, 32)}, r"k_cache: expected shape \[any, any, any, 32\], got \[6, 2, 16, 64\]"),
        ({"v_cache": torch.zeros(6, 2, 32, 64)}, r"v_cache: expected shape \[6, 2, 16, 64\]"),
        ({"block_tables": torch.zeros(2, 2)}, "block_tables: expected torch.int32, got torch.float32"),
        ({"query_starts": torch.tensor([0, 2], dtype=torch.int32)}, r"query_starts: expected shape \[3\], got \[2\]"),
        ({"query_starts": torch.tensor([0, 2, 1], dtype=torch.int32)}, "query_starts: expected rising from 0 to 2"),
        ({"query_starts": torch.tensor([0, 1, 1], dtype=torch.int32)}, "query_starts: expected rising from 0 to 2"),
        (
            {"context_lengths": torch.tensor([3, 33], dtype=torch.int32)},
            r"context_lengths\[1\]: expected in \[1, 33\), got 33",
        ),
        (
            {"context_lengths": torch.tensor([0, 3], dtype=torch.int32)},
            r"context_lengths\[0\]: expected in \[1, 33\), got 0",
        ),
        (
            {"block_tables": torch.tensor([[0, 9], [1, 6]], dtype=torch.int32)},
            r"block_tables\[1, 1\]: expected in \[0, 6\), got 6",
        ),
        ({"sliding_window": 0}, "sliding_window: expected at least 1 or None, got 0"),
        ({"backend": "gpu"}, "backend: expected 'cpu', 'triton', 'reference' or None, got 'gpu'"),
    ],
)
def test_errors_name_the_argument(change, message, backend):
    arguments = {
        "query": torch.zeros(2, 4, 64),
        "k_cache": torch.zeros(kv_cache_shape(6, 16, 2, 64)),
        "v_cache": torch.zeros(kv_cache_shape(6, 16, 2, 64)),
        "block_tables": torch.tensor([[0, 9], [1, 2]], dtype=torch.int32),  # the first row does not get to the 9
        "query_starts": torch.tensor([0, 1, 2], dtype=torch.int32),
        "context_lengths": torch.tensor([3, 17], dtype=torch.int32),
        "scale": 1.0,
        "backend": backend,
    }
    paged_attention(**arguments)
    with pytest.raises(ArgumentError, match=message):
        paged_attention(**{**arguments, **change})


def test_types_the_library_lacks_fall_back_to_the_definition():
    world = World(Shape(dtype=torch.float16), [20])
    assert torch.equal(world.attend([(0, 3, 20)], backend=None), world.attend([(0, 3, 20)], backend="reference"))
    with pytest.raises(ArgumentError, match="backend: 'cpu' can't do"):
        world.attend([(0, 3, 20)], backend="cpu")
