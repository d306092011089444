"""The law of the CPU kernels: a row's bits depend on its own tokens only. Every comparison here is bit for bit."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from world import Shape, World

from headrace_kernels.ops import add_rms_norm, gumbel_noise, rms_norm, rotary_embedding, silu_and_mul

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
WINDOWS = pytest.mark.parametrize("window", [None, 100], ids=["full", "window"])
LENGTH = 1100  # more than two partitions


def by_decode(world, positions, window=None):
    return torch.cat([world.attend([(0, p, p + 1)], window) for p in positions])


@BOTH
@WINDOWS
@pytest.mark.parametrize("shape", [(9, 3, 64), (4, 4, 80), (8, 2, 24)], ids=str)
def test_a_query_has_the_same_bits_by_decode_and_in_a_whole_prompt(shape, window, dtype, isa):
    world = World(Shape(*shape, dtype=dtype), [LENGTH])
    whole = world.attend([(0, 0, LENGTH)], window)
    positions = [*range(70), *range(500, 530), *range(1020, 1030), LENGTH - 1]
    assert torch.equal(by_decode(world, positions, window), whole[positions])


@BOTH
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 16, 31, 32, 33, 48, 64, 100])
def test_a_query_has_the_same_bits_wherever_a_chunk_begins(chunk, dtype, isa):
    world = World(Shape(dtype=dtype), [600])
    whole = world.attend([(0, 0, 600)])
    for start in (0, 1, 30, 470, 500):
        assert torch.equal(world.attend([(0, start, start + chunk)]), whole[start : start + chunk]), start


@given(cuts=st.lists(st.integers(1, LENGTH - 1), unique=True, max_size=8), window=st.none() | st.integers(1, 700))
@settings(max_examples=40)
def test_any_chunking_gives_the_same_bits(cuts, window):
    borders = [0, *sorted(cuts), LENGTH]
    whole = PROMPT.attend([(0, 0, LENGTH)], window)
    chunks = [PROMPT.attend([(0, a, b)], window) for a, b in pairwise(borders)]
    assert torch.equal(torch.cat(chunks), whole)


PROMPT = World(Shape(num_heads=6, num_kv_heads=2, head_dim=16, dtype=torch.bfloat16), [LENGTH])


@BOTH
def test_where_blocks_lie_makes_no_difference(dtype, isa):
    world = World(Shape(dtype=dtype), [LENGTH, 40])
    before = world.attend([(0, 900, LENGTH)])
    world.place(seed=99)
    assert torch.equal(world.attend([(0, 900, LENGTH)]), before)


@BOTH
@pytest.mark.parametrize("block_size", [16, 64, 128])
def test_the_size_of_blocks_makes_no_difference(block_size, dtype, isa):
    rows = [(0, 500, 550)]
    expected = World(Shape(dtype=dtype), [550]).attend(rows)
    assert torch.equal(World(Shape(dtype=dtype, block_size=block_size), [550]).attend(rows), expected)


@BOTH
def test_batch_mates_make_no_difference(dtype, isa):
    lengths = [1, 5, 33, 64, 300, 513, 1030, 2000]
    world = World(Shape(dtype=dtype), lengths)
    rows = [(i, max(0, n - 1 - 40 * (i % 2)), n) for i, n in enumerate(lengths)]
    alone = torch.cat([world.attend([row]) for row in rows])
    assert torch.equal(world.attend(rows), alone)
    backwards = world.attend(rows[::-1]).split([end - start for _, start, end in rows[::-1]])
    assert torch.equal(torch.cat(backwards[::-1]), alone)


@BOTH
@pytest.mark.parametrize("rows", [[(0, 1999, 2000)], [(0, 1950, 2000), (1, 9, 10)], [(0, 0, 2000)]], ids=str)
def test_the_number_of_threads_makes_no_difference(rows, dtype, isa, threads):
    world = World(Shape(dtype=dtype), [2000, 10])
    threads(1)
    one = world.attend(rows)
    for count in (2, 3, 8):
        threads(count)
        assert torch.equal(world.attend(rows), one)


def rowwise_operations(dtype, tokens):
    """Each operation on rows, as a function of the indices of tokens it is given."""
    generator = torch.Generator().manual_seed(3)

    def random(*shape):
        return torch.randn(*shape, generator=generator).to(dtype)

    x, weight, gate_up = random(tokens, 576), random(576), random(tokens, 2 * 1536)
    query, key, head_weight = random(tokens, 9, 64), random(tokens, 3, 64), random(64)
    wide = torch.randn(tokens, 576, generator=generator)
    angles = torch.randn(4096, 64, generator=generator)
    positions = torch.randint(4096, (tokens,), generator=generator)
    seeds = torch.randint(2**62, (tokens,), generator=generator)

    def rotated(index):
        rows = query[index].clone(), key[index].clone()
        rotary_embedding(*rows, angles, positions[index], backend="cpu")
        return rows

    return {
        "rms_norm": lambda index: (rms_norm(x[index], weight, 1e-5, backend="cpu"),),
        "rms_norm of heads": lambda index: (rms_norm(query[index], head_weight, 1e-5, backend="cpu"),),
        "add_rms_norm": lambda index: add_rms_norm(x[index], wide[index], weight, 1e-5, backend="cpu"),
        "rotary_embedding": rotated,
        "silu_and_mul": lambda index: (silu_and_mul(gate_up[index], backend="cpu"),),
        "gumbel_noise": lambda index: (gumbel_noise(seeds[index], positions[index], 4097, backend="cpu"),),
    }


@BOTH
@pytest.mark.parametrize("operation", rowwise_operations(torch.float32, 1))
def test_a_row_of_every_other_operation_has_the_same_bits_alone(operation, dtype, isa, threads):
    run = rowwise_operations(dtype, 150)[operation]
    together = run(torch.arange(150))
    threads(1)
    for got, expected in zip(run(torch.arange(150)), together, strict=True):
        assert torch.equal(got, expected), "1 thread"
    for index in (torch.tensor([0]), torch.tensor([149, 3]), torch.arange(17, 80)):
        for got, expected in zip(run(index), together, strict=True):
            assert torch.equal(got, expected[index]), index
