"""Linear layers of 8-bit and 4-bit weights: what packing keeps, the product against its definition, and the law."""

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from headrace_kernels import native
from headrace_kernels.quantized_linear import Blocks, Kind, dequantize, pack, quantized_linear, reference

TYPES = {Kind.INT8: Type.Q8_0, Kind.INT4_SYMMETRIC: Type.Q4_0, Kind.INT4: Type.Q4_1, Kind.INT4_NESTED: Type.Q4_K}
HALVES = {Kind.INT8: [0], Kind.INT4_SYMMETRIC: [0], Kind.INT4: [0, 2], Kind.INT4_NESTED: [0, 2]}  # float16 in a block
KINDS = pytest.mark.parametrize("kind", Kind, ids=lambda kind: kind.name)
OWN_KINDS = pytest.mark.parametrize("kind", [Kind.INT8, Kind.INT4], ids=lambda kind: kind.name)


def numbers(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def as_bfloat16(values):
    """Cut, not rounded: which bfloat16 it is does not matter here."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def random_blocks(kind, rows, in_features, seed=2):
    """Every pattern of bits but for sane scales."""
    generator = np.random.default_rng(seed)
    elements, size = kind.block
    blocks = generator.integers(0, 256, (rows * in_features // elements, size), dtype=np.uint8)
    for offset in HALVES[kind]:
        scales = (generator.standard_normal(len(blocks)) * 0.01).astype(np.float16)
        blocks[:, offset : offset + 2] = scales[:, None].view(np.uint8)
    return Blocks(kind, in_features, blocks.reshape(rows, -1))


def random_weight(kind, rows, in_features, seed=2):
    """From blocks where the width is whole blocks, else from a matrix."""
    if in_features % kind.block[0] == 0:
        return pack([random_blocks(kind, rows, in_features, seed)], kind)
    return pack([numbers(rows, in_features, seed=seed)], kind)


@KINDS
def test_packed_blocks_are_the_numbers_of_the_file_bit_for_bit(kind):
    blocks = random_blocks(kind, 37, 768)
    np.testing.assert_array_equal(dequantize(pack([blocks], kind)), gguf.dequantize(blocks.data, TYPES[kind]))


def test_every_byte_of_a_block_counts_in_its_own_place():
    """Over all 256 values: a nibble or a sign that is read wrong shows for some of them only."""
    block = np.zeros((8, 34), np.uint8)
    block[:, :2] = np.array([0.5], np.float16).view(np.uint8)
    block[:, 2:] = np.arange(256, dtype=np.uint8).reshape(8, 32)
    packed = pack([Blocks(Kind.INT8, 32, block)], Kind.INT8)
    np.testing.assert_array_equal(dequantize(packed), np.arange(256, dtype=np.uint8).view(np.int8).reshape(8, 32) * 0.5)


@KINDS
def test_parts_lie_one_below_the_other_in_the_order_asked_for(kind):
    first, second = random_blocks(kind, 5, 256, seed=3), random_blocks(kind, 20, 256, seed=4)
    order = np.random.default_rng(5).permutation(20)
    packed = pack([first, Blocks(kind, 256, second.data, order)], kind)
    expected = [gguf.dequantize(first.data, TYPES[kind]), gguf.dequantize(second.data, TYPES[kind])[order]]
    np.testing.assert_array_equal(dequantize(packed), np.concatenate(expected))


def test_blocks_and_matrices_may_be_parts_of_one_weight():
    blocks, matrix = random_blocks(Kind.INT8, 3, 64), numbers(4, 64)
    values = dequantize(pack([blocks, matrix], Kind.INT8))
    np.testing.assert_array_equal(values[:3], gguf.dequantize(blocks.data, Type.Q8_0))
    np.testing.assert_allclose(values[3:], matrix, atol=np.abs(matrix).max() / 127)


@pytest.mark.parametrize("in_features", [32, 576, 50])
@OWN_KINDS
def test_quantizing_is_off_by_at_most_half_a_step(kind, in_features):
    matrix = numbers(21, in_features)
    packed = pack([matrix], kind)
    _, scale, _ = reference.unpack(packed)
    # Half a step, and what rounding the scale and the minimum to float16 moves.
    limit = np.repeat(scale, 32, axis=1)[:, :in_features] * 0.51 + 2e-3 * np.abs(matrix).max()
    assert (np.abs(dequantize(packed) - matrix) <= limit).all()


@OWN_KINDS
@pytest.mark.parametrize("fill", [0.0, 1e-9, -3.5, 6e4])
def test_a_group_of_equal_weights_stays_what_it_is(kind, fill):
    matrix = np.full((2, 64), fill, np.float32)
    np.testing.assert_allclose(dequantize(pack([matrix], kind)), matrix, rtol=1e-3, atol=1e-7)


@OWN_KINDS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_no_number_shows_in_the_result(kind, bad):
    matrix = numbers(3, 64)
    matrix[1, 40] = bad
    out = quantized_linear(numbers(2, 64), pack([matrix], kind))
    assert not np.isfinite(out[:, 1]).any()
    assert np.isfinite(out[:, [0, 2]]).all()


@OWN_KINDS
def test_a_bfloat16_matrix_is_packed_as_its_float32(kind):
    narrow = as_bfloat16(numbers(33, 100))
    np.testing.assert_array_equal(pack([narrow], kind).packed, pack([reference.widen(narrow)], kind).packed)


@pytest.mark.usefixtures("isa")
@KINDS
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 16, 17, 40])
@pytest.mark.parametrize("out_features", [1, 16, 40, 130])
def test_the_product_is_what_the_definition_says(kind, rows, out_features):
    for in_features in (32, 256, 1536) if kind is not Kind.INT4_NESTED else (256, 1536):
        x, weight = numbers(rows, in_features, seed=rows), random_weight(kind, out_features, in_features)
        expected = reference.quantized_linear(x, weight)
        got = quantized_linear(x, weight)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.usefixtures("isa")
@OWN_KINDS
@pytest.mark.parametrize("in_features", [1, 31, 33, 50, 95])
def test_widths_that_are_no_whole_groups_are_padded_with_zeros(kind, in_features):
    x, weight = numbers(5, in_features), random_weight(kind, 18, in_features)
    expected = reference.quantized_linear(x, weight)
    np.testing.assert_allclose(quantized_linear(x, weight), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_integers_do_not_saturate(sign):
    """Every quant at its end, where 16-bit pairs would overflow if they could."""
    blocks = np.zeros((2, 34), np.uint8)
    blocks[:, :2] = np.array([1], np.float16).view(np.uint8)
    blocks[0, 2:], blocks[1, 2:] = 0x80, 0x7F  # -128, 127
    x = np.full((1, 32), sign * 127, np.float32)
    out = quantized_linear(x, pack([Blocks(Kind.INT8, 32, blocks)], Kind.INT8))
    np.testing.assert_array_equal(out, [[sign * 127 * 32 * -128, sign * 127 * 32 * 127]])


@KINDS
def test_the_product_is_near_that_of_the_unquantized_rows(kind):
    x, weight = numbers(9, 768), random_weight(kind, 50, 768)
    exact = x @ dequantize(weight).T
    error = np.abs(quantized_linear(x, weight) - exact).mean() / np.abs(exact).mean()
    assert error < 0.01


@pytest.mark.usefixtures("isa")
@KINDS
def test_a_row_has_the_same_bits_among_any_number_of_rows(kind, threads):
    x, weight = numbers(512, 512), random_weight(kind, 200, 512)
    alone = np.concatenate([quantized_linear(row[None], weight) for row in x[:64]])
    for count in (*range(1, 34), 48, 100, 511, 512):
        out = quantized_linear(x[:count], weight)
        np.testing.assert_array_equal(out[:64], alone[:count])
        shifted = quantized_linear(x[64 - min(count, 64) :][:count], weight)
        np.testing.assert_array_equal(shifted[: min(count, 64)], alone[64 - min(count, 64) :][:count])
    threads(1)
    np.testing.assert_array_equal(quantized_linear(x[:64], weight), alone)


@KINDS
def test_a_column_has_the_same_bits_among_any_other_columns(kind):
    x, blocks = numbers(11, 512), random_blocks(kind, 90, 512)
    whole = quantized_linear(x, pack([blocks], kind))
    for first, end in ((0, 1), (5, 40), (64, 90)):
        part = quantized_linear(x, pack([Blocks(kind, 512, blocks.data[first:end])], kind))
        np.testing.assert_array_equal(part, whole[:, first:end])


@KINDS
def test_instruction_sets_with_an_fma_give_the_same_bits(kind):
    x, weight = numbers(21, 1536), random_weight(kind, 70, 1536)
    best = quantized_linear(x, weight)
    sets = [name for name in ("avx2", "avx512", "avx512_vnni", "avx512_bf16", "amx") if name in machine_isas()]
    for name in sets:
        native.force_isa(name)
        try:
            np.testing.assert_array_equal(quantized_linear(x, weight), best)
        finally:
            native.force_isa(None)


@KINDS
@pytest.mark.parametrize("rows", [9, 16, 17, 25, 40])
def test_tiles_give_the_bits_of_lanes(kind, rows):
    """Both without an fma: tiles are emulated for any processor."""
    x, weight = numbers(rows, 768), random_weight(kind, 70, 768)
    try:
        native.force_isa("baseline")
        lanes = quantized_linear(x, weight)
        native.force_isa(native.EMULATED)
        np.testing.assert_array_equal(quantized_linear(x, weight), lanes)
    finally:
        native.force_isa(None)


@pytest.mark.usefixtures("isa")
def test_bfloat16_rows_and_rows_with_gaps_are_read_as_they_are():
    weight = random_weight(Kind.INT8, 20, 96)
    wide = as_bfloat16(numbers(10, 200))
    expected = quantized_linear(reference.widen(np.ascontiguousarray(wide[:, 7:103])), weight)
    np.testing.assert_array_equal(quantized_linear(wide[:, 7:103], weight), expected)
    transposed = np.ascontiguousarray(reference.widen(wide[:, 7:103]).T).T
    np.testing.assert_array_equal(quantized_linear(transposed, weight), expected)


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_no_number_gives_no_numbers_and_harms_no_other(bad):
    x, weight = numbers(4, 96), random_weight(Kind.INT4, 20, 96)
    expected = quantized_linear(x, weight)
    x[2, 50] = bad
    out = quantized_linear(x, weight)
    assert np.isnan(out[2]).all()
    np.testing.assert_array_equal(out[[0, 1, 3]], expected[[0, 1, 3]])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("scale", [1e-38, 1e-31, 1e-20, 1e30])
def test_rows_of_any_size_keep_their_precision_or_become_zero(scale):
    x, weight = numbers(3, 64), random_weight(Kind.INT8, 20, 64)
    out = quantized_linear(x * np.float32(scale), weight)
    expected = reference.quantized_linear(x * np.float32(scale), weight)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    assert (np.abs(out) > 0).any() == (scale > 1e-30)


def test_no_rows_give_no_rows():
    assert quantized_linear(np.empty((0, 64), np.float32), random_weight(Kind.INT4, 20, 64)).shape == (0, 20)


def test_bits_a_weight_are_what_the_formats_say():
    bits = {kind: random_weight(kind, 32, 512).nbytes * 8 / (32 * 512) for kind in Kind}
    assert bits == {Kind.INT8: 8.5, Kind.INT4_SYMMETRIC: 4.5, Kind.INT4: 5.0, Kind.INT4_NESTED: 4.625}


def test_what_does_not_fit_is_named():
    weight = random_weight(Kind.INT8, 20, 64)
    with pytest.raises(ValueError, match=r"x: expected \[any, 64\] of float32, .* got \[2, 63\] of float32"):
        quantized_linear(numbers(2, 63), weight)
    with pytest.raises(ValueError, match=r"got .* of float64"):
        quantized_linear(np.zeros((2, 64)), weight)
    with pytest.raises(ValueError, match=r"parts: expected the same in_features, got \[32, 64\]"):
        pack([numbers(2, 64), numbers(2, 32)], Kind.INT8)
    with pytest.raises(ValueError, match="blocks of INT8, got 40 bytes of INT4"):
        pack([random_blocks(Kind.INT4, 3, 64)], Kind.INT8)
    with pytest.raises(ValueError, match="a matrix becomes INT8 or INT4, got INT4_NESTED"):
        pack([numbers(2, 256)], Kind.INT4_NESTED)
    with pytest.raises(ValueError, match="parts: expected float32 or bfloat16 as uint16, got int64"):
        pack([np.zeros((2, 32), np.int64)], Kind.INT8)


def machine_isas():
    """Instruction sets that this machine can run."""
    names = list(native.instruction_sets())
    return names[: names.index(native.isa()) + 1]
