"""A step in parts: of one rank it has the bits of one call, and what several ranks make of their slices adds up."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Barrier

import numpy as np
import pytest
from decoder_world import Shape, World, packed_model, tokens

from headrace_kernels import native
from headrace_kernels.decoder import Decoder, KvLayer, StepInputs, StepOutputs
from headrace_kernels.decoder.reference import PlainDecoder, PlainLayer
from headrace_kernels.decoder.reference import logits as expected_logits
from headrace_kernels.kv_cache import kv_cache_shape
from headrace_kernels.memory import huge_zeros

TYPES = pytest.mark.parametrize("dtype", [native.FLOAT32, native.BFLOAT16], ids=["float32", "bfloat16"])
LENGTH = 40


@dataclass(frozen=True)
class Slices:
    """What a rank has."""

    heads: range
    kv_heads: range
    inner: range
    vocabulary: range


PLANS = {
    "two": [
        Slices(range(3), range(1), range(48), range(70)),
        Slices(range(3, 6), range(1, 2), range(48, 80), range(70, 131)),
    ],
    "three, one without heads": [
        Slices(range(3), range(1), range(32), range(50)),
        Slices(range(3, 6), range(1, 2), range(32, 41), range(50, 51)),
        Slices(range(0), range(0), range(41, 80), range(51, 131)),
    ],
}


@pytest.mark.parametrize(
    "shape",
    [Shape(), Shape(dtype=native.BFLOAT16, biases=True, windows=(13, None)), Shape(eight_bit_cache=True)],
    ids=["float32", "bfloat16", "8 bits"],
)
def test_parts_of_a_whole_model_have_the_bits_of_one_call(shape, isa):
    world, streams = World(shape, [tokens(LENGTH, 1)]), []
    whole = world.decoder.forward(inputs_of(world))
    parts = world.decoder.forward_among_ranks(inputs_of(world), lambda x: streams.append(x.copy()))
    assert np.array_equal(parts.logits, whole.logits)
    assert np.array_equal(parts.best_ids, whole.best_ids)
    assert [x.shape for x in streams] == [(LENGTH, shape.hidden)] * 5  # embedding, and two a layer
    assert np.array_equal(streams[0], as_float32(world.plain.embedding)[world.sequences[0]])


@TYPES
@pytest.mark.parametrize("biases", [False, True], ids=["", "biases"])
@pytest.mark.parametrize("plan", PLANS)
def test_slices_add_up_to_the_definition(plan, biases, dtype, isa):
    shape = Shape(dtype=dtype, biases=biases, head_norms=True, windows=(None, 13))
    world = World(shape, [tokens(LENGTH, 1)])
    outputs = step_of(world, PLANS[plan])
    got = np.concatenate([out.logits for out in outputs], axis=1)
    expected = expected_logits(world.plain, world.sequences[0])
    scale = np.abs(expected).max()
    np.testing.assert_allclose(got, expected, atol=scale * (0.03 if dtype == native.BFLOAT16 else 2e-5))
    for out, slices in zip(outputs, PLANS[plan], strict=True):
        assert np.array_equal(out.best_ids, slices.vocabulary.start + out.logits.argmax(axis=1))
        assert np.array_equal(out.best_logits, out.logits.max(axis=1))


def test_a_rank_without_heads_takes_no_cache_and_still_checks_the_step(isa):
    world = World(Shape(), [tokens(LENGTH, 1)])
    decoder = decoder_of(world, PLANS["three, one without heads"][2], carries_residual=False)
    bad = replace(inputs_of(world), block_tables=np.full((1, 2), 200, np.int32))
    with pytest.raises(ValueError, match="that the model doesn't have"):
        decoder.forward_among_ranks(bad, lambda x: None)


def inputs_of(world: World) -> StepInputs:
    """All of the first sequence as one chunk."""
    return StepInputs(
        np.array(world.sequences[0], np.int64),
        world.blocks[0][None].astype(np.int32),
        np.array([0, LENGTH], np.int32),
        np.array([LENGTH], np.int32),
        np.arange(LENGTH),
        np.ones(LENGTH, np.bool_),
    )


def step_of(world: World, plan: list[Slices]) -> list[StepOutputs]:
    """What each rank makes of it; all run at once."""
    sums = Sums(len(plan))

    def run(rank: int) -> StepOutputs:
        decoder = decoder_of(world, plan[rank], carries_residual=rank == 0)
        return decoder.forward_among_ranks(inputs_of(world), sums.of(rank))

    with ThreadPoolExecutor(len(plan)) as pool:
        return list(pool.map(run, range(len(plan))))


class Sums:
    """Ranks that are threads."""

    def __init__(self, ranks: int) -> None:
        self._barrier = Barrier(ranks, timeout=60)
        self._parts: list[np.ndarray] = [np.empty(0)] * ranks

    def of(self, rank: int) -> Callable[[np.ndarray], None]:
        def add_up(x: np.ndarray) -> None:
            self._parts[rank] = x.copy()
            self._barrier.wait()
            total = np.sum(self._parts, axis=0)
            self._barrier.wait()
            x[:] = total

        return add_up


def decoder_of(world: World, slices: Slices, *, carries_residual: bool) -> Decoder:
    shape, dim, heads, kv_heads = world.shape, world.shape.head_dim, slices.heads, slices.kv_heads
    sizes = replace(shape, heads=len(heads), kv_heads=len(kv_heads), inner=len(slices.inner))
    plain = cut(world.plain, slices, dim, carries_residual=carries_residual)
    element = np.uint16 if shape.dtype == native.BFLOAT16 else np.float32
    cache_shape = kv_cache_shape(world.num_blocks, shape.block_size, len(kv_heads), dim)
    cache = [KvLayer(huge_zeros(cache_shape, element), huge_zeros(cache_shape, element)) for _ in plain.layers]
    weights = packed_model(plain, sizes, slices.vocabulary, carries_residual=carries_residual)
    return Decoder(weights, plain.cos_sin, cache, shape.block_size)


def cut(plain: PlainDecoder, slices: Slices, dim: int, *, carries_residual: bool) -> PlainDecoder:
    queries, keys = rows_of(slices.heads, dim), rows_of(slices.kv_heads, dim)
    tokens_here = slice(slices.vocabulary.start, slices.vocabulary.stop)

    def layer(whole: PlainLayer) -> PlainLayer:
        inner, bias = slice(slices.inner.start, slices.inner.stop), whole.qkv_bias
        if bias is not None:
            query, key, value = np.split(bias, np.cumsum([len(whole.query), len(whole.key)]))
            bias = np.concatenate((query[queries], key[keys], value[keys]))
        return replace(
            whole,
            query=whole.query[queries],
            key=whole.key[keys],
            value=whole.value[keys],
            output=whole.output[:, queries],
            gate=whole.gate[inner],
            up=whole.up[inner],
            down=whole.down[:, inner],
            qkv_bias=bias if len(slices.heads) else None,
            output_bias=whole.output_bias if carries_residual else None,
        )

    layers = [layer(whole) for whole in plain.layers]
    return replace(plain, layers=layers, embedding=plain.embedding[tokens_here], head=plain.head[tokens_here])


def rows_of(heads: range, dim: int) -> slice:
    return slice(heads.start * dim, heads.stop * dim)


def as_float32(values: np.ndarray) -> np.ndarray:
    return values if values.dtype == np.float32 else (values.astype(np.uint32) << 16).view(np.float32)
