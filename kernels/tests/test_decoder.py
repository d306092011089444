"""A whole model in one call: the numbers are the definition's, and the law holds for whole models, bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
from decoder_world import Shape, World, tokens

from headrace_kernels import native
from headrace_kernels.decoder import OPERATIONS, StepInputs, Times
from headrace_kernels.decoder.reference import logits as expected_logits
from headrace_kernels.quantized_linear import Kind

TYPES = pytest.mark.parametrize("dtype", [native.FLOAT32, native.BFLOAT16], ids=["float32", "bfloat16"])

SHAPES = {
    "plain": Shape(),
    "one head": Shape(heads=1, kv_heads=1, head_dim=64, hidden=64),
    "odd sizes": Shape(hidden=52, inner=41, heads=5, kv_heads=5, head_dim=20, vocab=17),
    "head of 80": Shape(head_dim=80, heads=4, kv_heads=2, hidden=100),
    "head of 96": Shape(head_dim=96, heads=3, kv_heads=1, block_size=16),
    "head of 128": Shape(head_dim=128, heads=4, kv_heads=2),
    "head of 256": Shape(head_dim=256, heads=2, kv_heads=1),
    "group of 16": Shape(heads=16, kv_heads=1, head_dim=16),
    "blocks of 16": Shape(block_size=16),
    "windows": Shape(windows=(13, None, 40)),
    "biases": Shape(biases=True),
    "norms of heads": Shape(head_norms=True),
    "half of a head turns": Shape(rotary_dim=16),
    "a layer without positions": Shape(nope_layers=(1,)),
}


@TYPES
@pytest.mark.parametrize("name", SHAPES)
def test_logits_are_the_definitions(name, dtype, isa):
    shape = replace(SHAPES[name], dtype=dtype)
    world = World(shape, [tokens(75, 1, shape.vocab)])
    got = world.whole(0, 40)
    expected = expected_logits(world.plain, world.sequences[0])
    scale = np.abs(expected).max()
    # bfloat16: where the definition rounds the other way, a whole ulp of one activation, 2^-8, goes through the rest.
    np.testing.assert_allclose(got, expected, atol=scale * (0.03 if dtype == native.BFLOAT16 else 2e-5))


@TYPES
@pytest.mark.parametrize("name", SHAPES)
def test_with_a_cache_in_8_bits_logits_are_the_definitions(name, dtype, isa):
    shape = replace(SHAPES[name], dtype=dtype, eight_bit_cache=True)
    world = World(shape, [tokens(75, 1, shape.vocab)])
    got = world.whole(0, 40)
    expected = expected_logits(world.plain, world.sequences[0])
    # Where the definition rounds the other way, an element is off by one of 127 steps.
    np.testing.assert_allclose(
        got, expected, atol=np.abs(expected).max() * (0.05 if dtype == native.BFLOAT16 else 0.02)
    )
    plain = expected_logits(replace(world.plain, eight_bit_cache=False), world.sequences[0])
    error, difference = np.abs(got - expected).mean(), np.abs(expected - plain).mean()
    assert error < (1.0 if dtype == native.BFLOAT16 else 0.2) * difference, "no nearer to the definition than to bf16"


LENGTH = 560
"""More than one partition of attention."""


LAWFUL = {
    "float32": Shape(),
    "bfloat16": Shape(dtype=native.BFLOAT16),
    "float32-8-bits": Shape(eight_bit_cache=True),
    "bfloat16-8-bits": Shape(dtype=native.BFLOAT16, eight_bit_cache=True),
    "int8": Shape(dtype=native.BFLOAT16, weights=Kind.INT8),
    "int8-8-bits": Shape(weights=Kind.INT8, eight_bit_cache=True),
    "int4": Shape(dtype=native.BFLOAT16, weights=Kind.INT4),
}
"""Types of weights, and of caches in 8 bits."""


@pytest.fixture(params=LAWFUL)
def long_world(request, isa):
    """One long sequence and many short ones; `expected` is the first, computed in one step."""
    shape = replace(LAWFUL[request.param], windows=(None, 100))
    world = World(shape, [tokens(LENGTH, 3), *(tokens(5 + i, 100 + i) for i in range(100))], num_blocks=300)
    world.expected = world.step({0: LENGTH})
    return world


@pytest.mark.parametrize("chunk", [1, 7, 16, 31, 33, 128, 512])
def test_chunks_of_any_size_give_the_same_bits(long_world, chunk):
    """Chunks of one token are what decode is."""
    long_world.start(seed=chunk)
    assert np.array_equal(long_world.whole(0, chunk), long_world.expected)


@pytest.mark.parametrize("mates", [1, 2, 15, 16, 17, 48, 100])
def test_batch_mates_make_no_difference(long_world, mates):
    long_world.start()
    long_world.step({0: LENGTH - 3})
    for i in range(3):
        together = long_world.step({**dict.fromkeys(range(1, 1 + mates), 1), 0: 1}, whole=False)
        assert np.array_equal(together[-1], long_world.expected[LENGTH - 3 + i]), i


def test_the_number_of_threads_makes_no_difference(long_world, threads):
    for count in (1, 3):
        threads(count)
        long_world.start()
        assert np.array_equal(long_world.whole(0, 200), long_world.expected)


def test_a_cached_prefix_gives_the_bits_of_a_computed_one(long_world):
    """Another row's blocks, then the rest in steps that begin elsewhere."""
    long_world.start()
    long_world.step({0: 300})
    long_world.sequences.append(long_world.sequences[0])
    fresh = np.setdiff1d(np.arange(long_world.num_blocks), np.concatenate(long_world.blocks))
    long_world.blocks.append(np.concatenate((long_world.blocks[0][:9], fresh[: len(long_world.blocks[0]) - 9])))
    long_world.computed.append(9 * 32)
    assert np.array_equal(long_world.whole(101, 50), long_world.expected[9 * 32 :])


@pytest.mark.parametrize("types", LAWFUL)
def test_five_hundred_rows_decode_with_the_bits_of_one(types, isa):
    shape = replace(LAWFUL[types], hidden=64, inner=48, heads=2, kv_heads=1)
    world = World(shape, [tokens(6, i) for i in range(512)], num_blocks=520)
    every = range(512)
    world.step(dict.fromkeys(every, 5), whole=False)
    together = world.step(dict.fromkeys(every, 1), whole=False)
    for i in (0, 1, 255, 511):
        world.computed[i] -= 1
        assert np.array_equal(world.step({i: 1}), together[i : i + 1]), i


@TYPES
def test_best_is_the_largest_logit_and_the_lowest_id_among_equals(dtype, isa):
    world = World(Shape(dtype=dtype), [tokens(40, 1)])
    plain = world.plain
    plain.head[100] = plain.head[7]  # two tokens with one logit everywhere
    world.start()
    world.computed[0] = 40
    out = world.run({0: world.sequences[0]})
    assert np.array_equal(out.best_ids, out.logits.argmax(axis=1))
    assert np.array_equal(out.best_logits, out.logits.max(axis=1))
    assert np.array_equal(out.logits[:, 100], out.logits[:, 7])


def test_a_nan_is_the_best(isa):
    world = World(Shape(), [tokens(3, 1)])
    world.plain.head[90] = np.nan
    world.start()
    world.computed[0] = 3
    assert np.isnan(world.run({0: world.sequences[0]}).best_logits).all()


def test_only_wanted_logits_are_given(isa):
    world = World(Shape(), [tokens(5, 1)])
    world.computed[0] = 5
    every = world.run({0: world.sequences[0]})
    wanted = np.array([False, True, False, True, True])
    some = world.decoder.forward(
        StepInputs(
            np.array(world.sequences[0], np.int64),
            world.blocks[0][None].astype(np.int32),
            np.array([0, 5], np.int32),
            np.array([5], np.int32),
            np.arange(5),
            wanted,
        )
    )
    assert np.array_equal(some.logits, every.logits[wanted])
    assert np.array_equal(some.best_ids, every.best_ids)
    assert np.array_equal(world.decoder.logits(np.array([3, 0])), every.logits[[3, 0]])


@pytest.mark.parametrize(
    "bad",
    [{"token_ids": 131}, {"token_ids": -1}, {"block_tables": 200}, {"block_tables": -1}, {"context_lengths": 2000}],
    ids=str,
)
def test_a_step_that_names_what_is_not_there_computes_nothing(bad):
    world = World(Shape(), [tokens(5, 1)])
    arrays = {
        "token_ids": np.array(world.sequences[0], np.int64),
        "block_tables": world.blocks[0][None].astype(np.int32),
        "context_lengths": np.array([5], np.int32),
    }
    for name, value in bad.items():
        arrays[name].flat[0] = value
    inputs = StepInputs(
        query_starts=np.array([0, 5], np.int32), sampled=np.array([4]), logits_wanted=np.ones(1, bool), **arrays
    )
    with pytest.raises(ValueError, match="that the model doesn't have"):
        world.decoder.forward(inputs)


def test_every_operation_is_timed():
    world, times = World(Shape(), [tokens(40, 1)]), Times()
    world.computed[0] = 40
    inputs = StepInputs(
        np.array(world.sequences[0], np.int64),
        world.blocks[0][None].astype(np.int32),
        np.array([0, 40], np.int32),
        np.array([40], np.int32),
        np.array([39]),
        np.zeros(1, bool),
    )
    world.decoder.forward(inputs, times)
    assert {name for name, time in zip(OPERATIONS, times.work, strict=True) if time > 0} == {*OPERATIONS} - {"quantize"}


@TYPES
@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(heads=5, kv_heads=5, head_dim=16),
        Shape(block_size=16),
        Shape(eight_bit_cache=True),
        Shape(block_size=16, eight_bit_cache=True),
    ],
    ids=str,
)
def test_rows_that_read_common_blocks_at_once_have_the_bits_of_one_alone(shape, dtype, isa):
    """Three partitions in common, two, none; one row has another's first block and no more. A row decodes at each
    place of a partition's end."""
    shape = replace(shape, dtype=dtype)
    common, lengths = tokens(800, 1), [800, 790, 769, 770, 600, 520, 300, 40]
    world = World(
        shape, [*(common[:length] + tokens(3, i) for i, length in enumerate(lengths)), tokens(700, 99)], num_blocks=400
    )
    alone = [world.step({s: len(world.sequences[s])}, whole=False) for s in range(9)]
    owner = world.blocks[0]
    for s, length in enumerate(lengths[1:], 1):
        whole = length // shape.block_size
        world.blocks[s] = np.concatenate((owner[:whole], world.blocks[s][whole:]))
    lone = 6
    world.blocks[lone][1:9] = world.blocks[8][:8]  # of its own contents nothing is left behind the first block
    for s in (8, lone):
        world.computed[s] = 0
        alone[s] = world.step({s: len(world.sequences[s])}, whole=False)
    world.computed = [len(sequence) for sequence in world.sequences]
    some = [s for s in range(9) if s != 8]  # its blocks were overwritten
    together = world.run({s: world.sequences[s][-1:] for s in some}, whole=False).logits
    for s, got in zip(some, together, strict=True):
        assert np.array_equal(got, alone[s][0]), s
