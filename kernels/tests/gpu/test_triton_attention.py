"""The Triton attention against its definition, interpreted."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from world import Shape, World

from headrace_kernels.kv_cache import kv_cache_shape
from headrace_kernels.ops import ArgumentError, paged_attention
from headrace_kernels.paged_attention.workspace import DecodeWorkspace

TOLERANCE = {torch.float32: {"atol": 2e-5, "rtol": 2e-5}, torch.float16: {"atol": 1.5e-2, "rtol": 8e-3}}
"""float32: sums in another order. float16: each weight of a key is rounded, 2^-11 of values up to 6."""

PLAIN = {"panels": False}


def assert_matches_reference(world, rows, window=None, *, softcap=None, sinks=None, **options):
    got = world.attend(rows, window, "triton", softcap=softcap, sinks=sinks, **options)
    expected = world.attend(rows, window, "reference", softcap=softcap, sinks=sinks)
    assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected, **TOLERANCE[world.shape.dtype])


def decodes(lengths):
    return [(i, length - 1, length) for i, length in enumerate(lengths)]


shapes = st.builds(
    lambda group, kv_heads, **sizes: Shape(group * kv_heads, kv_heads, panels=False, **sizes),
    group=st.sampled_from([1, 2, 3, 4, 7, 16]),
    kv_heads=st.integers(1, 2),
    head_dim=st.sampled_from([16, 64, 80, 96, 128]),
    block_size=st.sampled_from([16, 32, 64]),
    dtype=st.sampled_from([torch.float32, torch.float16]),
    cache_dtype=st.sampled_from([None, None, torch.float8_e4m3fn, torch.float8_e5m2]),
    k_scale=st.sampled_from([1.0, 0.37]),
    v_scale=st.sampled_from([1.0, 2.3]),
)
windows = st.none() | st.integers(1, 100)
softcaps = st.none() | st.sampled_from([2.0, 30.0])


def some_sinks(wanted, shape):
    return torch.randn(shape.num_heads, generator=torch.Generator().manual_seed(5)) if wanted else None


@given(
    shape=shapes,
    lengths=st.lists(st.tuples(st.integers(1, 150), st.sampled_from([0, 1, 1, 5, 40])), min_size=1, max_size=4),
    window=windows,
    softcap=softcaps,
    with_sinks=st.booleans(),
)
@settings(max_examples=25)
def test_any_mixture_of_chunks_and_decode_rows(shape, lengths, window, softcap, with_sinks):
    world = World(shape, [length for length, _ in lengths])
    rows = [(i, max(0, length - queries), length) for i, (length, queries) in enumerate(lengths)]
    assert_matches_reference(world, rows, window, softcap=softcap, sinks=some_sinks(with_sinks, shape))


@given(
    shape=shapes,
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    window=windows,
    softcap=softcaps,
    with_sinks=st.booleans(),
)
@settings(max_examples=20)
def test_decode_rows_alone(shape, lengths, window, softcap, with_sinks):
    world = World(shape, lengths)
    sinks = some_sinks(with_sinks, shape)
    assert_matches_reference(world, decodes(lengths), window, softcap=softcap, sinks=sinks, decode=True)


def test_a_prompt_of_several_large_tiles():
    assert_matches_reference(World(Shape(4, 1, 32, 16, **PLAIN), [150]), [(0, 0, 150)])


def test_heads_of_256_elements():
    world = World(Shape(4, 2, 256, 16, torch.float16, **PLAIN), [70, 40])
    assert_matches_reference(world, [(0, 30, 70), (1, 39, 40)])
    assert_matches_reference(world, decodes([70, 40]), decode=True)


@pytest.mark.parametrize("chip", [80, 90])
def test_e4m3_with_and_without_the_chips_help(chip, monkeypatch):
    monkeypatch.setattr("headrace_kernels.gpu.float8.capability", lambda: chip)
    shape = Shape(2, 1, 32, 16, torch.float16, torch.float8_e4m3fn, False, 0.01, 3.0)
    assert_matches_reference(World(shape, [40]), [(0, 10, 40)])


def test_a_sequence_is_split_and_merged():
    """A fair share of one sequence alone is less than the least split, so there are as many as it has 128 tokens."""
    world = World(Shape(2, 1, 16, 16, **PLAIN), [600])
    assert_matches_reference(world, [(0, 599, 600)], decode=True, workspace=poisoned(world, 1, 600))
    assert_matches_reference(world, [(0, 599, 600)], 200, decode=True, workspace=poisoned(world, 1, 600))


def poisoned(world, max_rows, max_context):
    """A workspace in which what was not written shows."""
    shape = world.shape
    workspace = DecodeWorkspace(max_rows, max_context, shape.num_heads, shape.head_dim, torch.device("cpu"))
    for floats in (workspace.sums, workspace.maxima, workspace.weights):
        floats.fill_(float("nan"))
    return workspace


@pytest.mark.parametrize("window", [None, 270])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_batch_invariant_bits_depend_on_nothing_but_the_sequence(dtype, window, rows_alike):
    """By decode alone, with mates, among chunks, and in chunks whose borders lie elsewhere."""
    lengths = [530, 40, 300]
    world = World(Shape(4, 2, 32, 16, dtype, **PLAIN), lengths)
    sinks = some_sinks(True, world.shape)

    def attend(rows, **options):
        workspace = poisoned(world, 4, 1024)
        return world.attend(rows, window, "triton", sinks=sinks, batch_invariant=True, workspace=workspace, **options)

    alone = attend([(0, 529, 530)], decode=True)[0]
    assert torch.equal(attend(decodes(lengths), decode=True)[0], alone)
    assert torch.equal(attend([(1, 3, 40), (0, 529, 530)])[-1], alone)
    assert torch.equal(attend([(0, 519, 530)])[-1], alone)
    world.place(99)
    assert torch.equal(attend([(2, 250, 300), (0, 500, 530)])[-1], alone)
    assert_matches_reference(world, [(2, 250, 300), (0, 500, 530)], window, sinks=sinks, batch_invariant=True)


def test_blocks_that_a_window_has_left_are_not_read():
    world = World(Shape(**PLAIN), [200])
    expected = world.attend([(0, 199, 200)], 40, "triton", decode=True)
    world.k_cache[world.blocks[0][:4].long()] = float("nan")
    world.v_cache[world.blocks[0][:4].long()] = float("nan")
    world.blocks[0][:4] = 0
    assert torch.equal(world.attend([(0, 199, 200)], 40, "triton", decode=True), expected)


@pytest.mark.parametrize("decode", [False, True])
def test_padding_of_a_captured_graph_touches_nothing(decode):
    """Tokens of no row, rows without queries, rows without context; results of real rows are as without."""
    world = World(Shape(2, 1, 16, 16, **PLAIN), [20, 33])
    query = torch.cat([world.sequences[0].query[-1:], world.sequences[1].query[-1:], torch.zeros(4, 2, 16)])
    tables = torch.zeros(5, 3, dtype=torch.int32)
    tables[0, :2], tables[1] = world.blocks[0], world.blocks[1]
    starts, contexts = torch.tensor([0, 1, 2, 3, 3, 3]).int(), torch.tensor([20, 33, 0, 0, 7]).int()
    got = paged_attention(
        query, world.k_cache, world.v_cache, tables, starts, contexts, 0.25, backend="triton", decode=decode
    )
    torch.testing.assert_close(got[:2], world.attend(decodes([20, 33]), None, "reference"), **TOLERANCE[torch.float32])


def test_what_triton_cannot_do_is_refused():
    def call(head_dim=64, **options):
        caches = torch.zeros(2, *kv_cache_shape(2, 16, 1, head_dim))
        ints = torch.zeros(2, dtype=torch.int32)
        query, batch = torch.zeros(1, 2, head_dim), (torch.zeros(1, 1, dtype=torch.int32), ints, ints[:1])
        return paged_attention(query, *caches, *batch, 1.0, **{"backend": "triton", **options})

    for refused in ({"panels": True}, {"head_dim": 272}):
        with pytest.raises(ArgumentError, match="backend: 'triton' can't do"):
            call(**refused)
    with pytest.raises(ArgumentError, match="backend: 'cpu' can't do"):
        call(softcap=1.0, backend="cpu")
    with pytest.raises(ArgumentError, match=r"sinks: expected shape \[2\], got \[3\]"):
        call(sinks=torch.zeros(3))
    with pytest.raises(ArgumentError, match="softcap: expected above 0 or None, got 0"):
        call(softcap=0)
