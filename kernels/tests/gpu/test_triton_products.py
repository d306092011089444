"""Matrix products in the interpreter against their definitions, and 4-bit checkpoints' layouts."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import packing
import pytest
import strategies as draw
import torch
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton import jit

from headrace_kernels.gpu.launch import launch
from headrace_kernels.gpu.tiles import tile_place
from headrace_kernels.int4_matmul import layouts, triton
from headrace_kernels.int4_matmul.reference import dequantize
from headrace_kernels.int4_shifts import AWQ, IN_ORDER
from headrace_kernels.ops import (
    ArgumentError,
    GroupedWeight,
    Int4Weight,
    QuantizedRows,
    int4_matmul,
    invariant_linear,
    quantize_rows,
    scaled_matmul,
)

rows = st.sampled_from([0, 1, 3, 16, 17, 40, 70, 130])
inner = st.one_of(st.integers(1, 70), st.sampled_from([127, 129, 256, 300]))
outer = st.one_of(st.integers(1, 70), st.sampled_from([127, 129]))
eights = st.sampled_from([torch.int8, torch.float8_e4m3fn])


@jit
def _count_places(counts_ptr, rows, columns, BLOCK: tl.constexpr):
    row, column = tile_place(tl.program_id(0), rows, columns, BLOCK, BLOCK)
    tl.atomic_add(counts_ptr + row * tl.cdiv(columns, BLOCK) + column, 1)


@draw.FEW
@given(rows=st.integers(1, 200), columns=st.integers(1, 60))
def test_programs_compute_each_tile_once(rows, columns):
    """Up to 25 rows of tiles, of which 8 go together."""
    counts = torch.zeros(-(-rows // 8), -(-columns // 8), dtype=torch.int32)
    launch(_count_places, (counts.numel(),), counts, rows, columns, BLOCK=8)
    assert (counts == 1).all()


def bias_of(size: int, has_bias: bool, seed: int) -> torch.Tensor | None:
    return draw.tensor(size, seed=seed + 9) if has_bias else None


@draw.FEW
@given(
    rows=rows,
    inner=inner,
    outer=outer,
    dtype=draw.floats,
    has_bias=st.booleans(),
    strided=st.booleans(),
    seed=draw.seeds,
)
def test_rows_as_if_each_were_alone(rows, inner, outer, dtype, has_bias, strided, seed):
    x = draw.tensor(rows, inner + 4 * strided, seed=seed, dtype=dtype)[:, :inner]
    weight = draw.tensor(outer, inner + 4 * strided, seed=seed + 1, dtype=dtype, scale=0.2)[:, :inner]
    bias = bias_of(outer, has_bias, seed)
    got = invariant_linear(x, weight, bias, backend="triton")
    expected = invariant_linear(x, weight, bias, backend="reference")
    assert (got.dtype, got.is_contiguous()) == (dtype, True)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=tolerance)


@draw.FEW
@given(
    rows=rows, inner=inner, outer=outer, eight=eights, has_bias=st.booleans(), strided=st.booleans(), seed=draw.seeds
)
def test_eight_bits_times_eight_bits(rows, inner, outer, eight, has_bias, strided, seed):
    x = quantize_rows(draw.tensor(rows, inner + 4 * strided, seed=seed), eight, backend="reference")
    x = QuantizedRows(x.values[:, :inner], x.scales)
    weight = quantize_rows(draw.tensor(outer, inner, seed=seed + 1), eight, backend="reference")
    bias = bias_of(outer, has_bias, seed)
    got = scaled_matmul(x, weight, bias, dtype=torch.float32, backend="triton")
    expected = scaled_matmul(x, weight, bias, dtype=torch.float32, backend="reference")
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-5)
    if eight is torch.int8 and bias is None:
        assert torch.equal(got, expected)


@draw.FEW
@given(rows=rows, inner=inner, outer=outer, eight=eights, dtype=draw.floats, has_bias=st.booleans(), seed=draw.seeds)
def test_weights_alone_in_eight_bits(rows, inner, outer, eight, dtype, has_bias, seed):
    x = draw.tensor(rows, inner, seed=seed, dtype=dtype)
    weight = quantize_rows(draw.tensor(outer, inner, seed=seed + 1, scale=0.1), eight, backend="reference")
    bias = bias_of(outer, has_bias, seed)
    got = scaled_matmul(x, weight, bias, dtype=dtype, backend="triton")
    expected = scaled_matmul(x, weight, bias, dtype=dtype, backend="reference")
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=tolerance)


groups = st.sampled_from([(32, 96), (64, 192), (128, 256), (128, 200), (1000, 136), (96, 288)])


@draw.FEW
@given(
    rows=rows, shape=groups, outer=outer, eight=eights, rounded=st.booleans(), has_bias=st.booleans(), seed=draw.seeds
)
def test_eight_bits_in_groups(rows, shape, outer, eight, rounded, has_bias, seed):
    group_size, inner = shape
    values = quantize_rows(draw.tensor(outer, inner, seed=seed + 1), eight, backend="reference").values
    scales = draw.tensor(-(-inner // group_size), outer, seed=seed + 2, scale=0.01)
    x = draw.tensor(rows, inner, seed=seed)
    given = quantize_rows(x, eight, backend="reference") if rounded else x
    bias = bias_of(outer, has_bias, seed)
    got = scaled_matmul(given, GroupedWeight(values, scales, group_size), bias, dtype=torch.float32, backend="triton")
    weight = values.float() * scales.repeat_interleave(group_size, 0)[:inner].T
    wide = given.values.float() * given.scales[:, None] if rounded else x
    expected = wide @ weight.T + (0 if bias is None else bias)
    torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-4)
    by_definition = scaled_matmul(
        given, GroupedWeight(values, scales, group_size), bias, dtype=torch.float32, backend="reference"
    )
    torch.testing.assert_close(by_definition, expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(
    ("group_size", "groups", "message"),
    [
        (36, 3, "weight.group_size: expected a multiple of 32, got 36"),
        (64, 3, r"weight.scales: expected shape \[2, 8\]"),
    ],
)
def test_errors_of_groups_name_the_argument(group_size, groups, message):
    weight = GroupedWeight(torch.zeros(8, 100, dtype=torch.int8), torch.ones(groups, 8), group_size)
    with pytest.raises(ArgumentError, match=message):
        scaled_matmul(torch.zeros(1, 100), weight, dtype=torch.float32)


def test_every_float8_is_widened_exactly():
    bits = torch.arange(256, dtype=torch.uint8)
    finite = bits[(bits & 0x7F) != 0x7F].view(torch.float8_e4m3fn)
    weight = QuantizedRows(finite[:, None], torch.ones(len(finite)))
    got = scaled_matmul(torch.ones(1, 1), weight, dtype=torch.float32, backend="triton")
    assert torch.equal(got[0], finite.float())


@pytest.mark.parametrize("eight", [torch.int8, torch.float8_e4m3fn])
def test_a_row_that_is_not_finite_gives_one_that_is_not_and_no_other(eight):
    x = draw.tensor(3, 40, seed=1)
    x[1, 7] = float("inf")
    weight = quantize_rows(draw.tensor(20, 40, seed=2), eight, backend="triton")
    out = scaled_matmul(quantize_rows(x, eight, backend="triton"), weight, dtype=torch.float32, backend="triton")
    assert out.isfinite().all(dim=1).tolist() == [True, False, True]
    assert not out[1].isfinite().any()


def gptq(
    qweight: torch.Tensor,
    qzeros: torch.Tensor,
    scales: torch.Tensor,
    g_idx: torch.Tensor | None,
    group_size: int,
    zero_offset: int,
) -> Int4Weight:
    """Of a checkpoint's tensors."""
    zeros = layouts.unpack_columns(qzeros, IN_ORDER) + zero_offset
    return layouts.from_gptq(qweight, zeros, scales, g_idx, group_size)


def weight_of(shape: tuple[int, int], outer: int, seed: int) -> Int4Weight:
    group_size, in_features = shape
    nibbles, zeros, scales = packing.draw(in_features, outer * 8, group_size, seed)
    return gptq(*packing.gptq(nibbles, zeros), scales, None, group_size, 1)


@draw.FEW
@given(rows=rows, shape=groups, outer=st.integers(1, 18), dtype=draw.floats, has_bias=st.booleans(), seed=draw.seeds)
def test_four_bits(rows, shape, outer, dtype, has_bias, seed):
    weight = weight_of(shape, outer, seed)
    x = draw.tensor(rows, shape[1], seed=seed, dtype=dtype)
    bias = bias_of(outer * 8, has_bias, seed)
    got = int4_matmul(x, weight, bias, backend="triton")
    expected = int4_matmul(x, weight, bias, backend="reference")
    tolerance = 1e-3 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(got, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("has_bias", [False, True])
def test_many_rows_are_multiplied_by_weights_that_were_unpacked_before(has_bias, monkeypatch):
    monkeypatch.setattr(triton, "MANY_ROWS", 4)
    weight, x, bias = weight_of((128, 200), 5, 1), draw.tensor(5, 200, seed=2), bias_of(40, has_bias, 3)
    assert torch.equal(triton.dequantize(weight, torch.float32), dequantize(weight))
    expected = int4_matmul(x, weight, bias, backend="reference")
    torch.testing.assert_close(int4_matmul(x, weight, bias, backend="triton"), expected, atol=1e-3, rtol=1e-3)


def products() -> dict[str, Callable[..., torch.Tensor]]:
    """Each product as a function of its rows [n, 200], with weights of its own."""
    plain, bias = draw.tensor(40, 200, seed=1), draw.tensor(40, seed=2)
    eight, four = quantize_rows(plain, torch.int8, backend="reference"), weight_of((128, 200), 5, 1)
    scattered = replace(four, groups=(torch.arange(200) % 2).int())
    return {
        "plain": lambda x: invariant_linear(x, plain, bias, backend="triton"),
        "plain, 16 bits": lambda x: invariant_linear(x.half(), plain.half(), backend="triton"),
        "8 bits": lambda x, **options: scaled_matmul(x, eight, dtype=torch.float32, backend="triton", **options),
        "4 bits": lambda x, **options: int4_matmul(x, four, bias, backend="triton", **options),
        "4 bits, scattered": lambda x, **options: int4_matmul(x, scattered, bias, backend="triton", **options),
    }


def same_alone_and_together(product: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Bit for bit, at other places among other numbers of rows, for which other tiles would be taken."""
    x = draw.tensor(70, 200, seed=3)
    alone = product(x[:1])
    together = [product(x[:17])[:1], product(x[:40].flip(0))[-1:], product(x[:64])[:1], product(x.flip(0))[-1:]]
    return all(torch.equal(row, alone) for row in together)


@pytest.mark.parametrize("name", ["plain", "plain, 16 bits"])
def test_a_row_has_the_same_bits_in_every_batch(name, rows_alike):
    assert same_alone_and_together(products()[name])


@pytest.mark.parametrize("name", ["8 bits", "4 bits", "4 bits, scattered"])
def test_a_row_of_quantized_products_has_them_where_it_is_asked_for(name, rows_alike, monkeypatch):
    monkeypatch.setattr(triton, "MANY_ROWS", 64)
    product = products()[name]
    assert same_alone_and_together(partial(product, batch_invariant=True))
    assert not same_alone_and_together(product), "other tiles sum in another order, or this proves nothing"


@pytest.mark.parametrize("zero_offset", [0, 1])
@pytest.mark.parametrize(("group_size", "in_features"), [(32, 96), (128, 128), (96, 96)])
def test_gptq_stands_for_its_numbers(group_size, in_features, zero_offset):
    nibbles, zeros, scales = packing.draw(in_features, 16, group_size, 5)
    g_idx = torch.arange(in_features, dtype=torch.int32) // group_size
    for given_idx in (g_idx, None):
        packed = packing.gptq(nibbles, zeros, zero_offset)
        weight = gptq(*packed, scales, given_idx, group_size, zero_offset)
        assert weight.order is None
        assert torch.equal(dequantize(weight), packing.values(nibbles, zeros, scales, g_idx))


def test_a_zero_of_16_is_stored_as_15():
    packed = packing.gptq(torch.full((32, 8), 3), torch.full((1, 8), 16))
    weight = gptq(*packed, torch.ones(1, 8).half(), None, 32, 1)
    assert (dequantize(weight) == -13).all()


@pytest.mark.parametrize("backend", ["triton", "reference"])
def test_gptq_with_act_order_sorts_inputs_and_rows_with_them(backend):
    nibbles, zeros, scales = packing.draw(96, 16, 32, 5)
    g_idx = torch.randperm(96, generator=torch.Generator().manual_seed(1)).to(torch.int32) // 32
    weight = gptq(*packing.gptq(nibbles, zeros), scales, g_idx, 32, 1)
    x = draw.tensor(3, 96, seed=4)
    expected = x @ packing.values(nibbles, zeros, scales, g_idx)
    torch.testing.assert_close(int4_matmul(x, weight, backend=backend), expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(ArgumentError, match="g_idx: expected 32 inputs in each group"):
        gptq(*packing.gptq(nibbles, zeros), scales, g_idx.clamp(max=1), 32, 1)


def some_inputs_in_act_order(begin: int, end: int) -> tuple[Int4Weight, torch.Tensor]:
    """Those of a layer of 96 whose groups of 32 are no neighbours, and what their numbers stand for."""
    nibbles, zeros, scales = packing.draw(96, 40, 32, 5)
    g_idx = torch.randperm(96, generator=torch.Generator().manual_seed(1)).to(torch.int32) // 32
    qweight, _ = packing.gptq(nibbles, zeros)
    weight = layouts.from_gptq_part(qweight[begin // 8 : end // 8], zeros.to(torch.uint8), scales, g_idx[begin:end])
    return weight, packing.values(nibbles, zeros, scales, g_idx)[begin:end]


@pytest.mark.parametrize("backend", ["triton", "reference"])
@pytest.mark.parametrize(("begin", "end"), [(0, 96), (0, 40), (40, 96), (88, 96)])
@pytest.mark.parametrize("rows", [1, 20, 40, 70])
def test_some_inputs_in_act_order_have_the_scale_of_their_own_group_each(rows, begin, end, backend, monkeypatch):
    """Few rows, whose inputs are shared out; more; so many that weights are unpacked before."""
    monkeypatch.setattr(triton, "MANY_ROWS", 64)
    weight, values = some_inputs_in_act_order(begin, end)
    x, bias = draw.tensor(rows, end - begin, seed=4), bias_of(40, True, 3)
    got = int4_matmul(x, weight, bias, backend=backend)
    torch.testing.assert_close(got, x @ values + bias, atol=1e-4, rtol=1e-4)


def test_groups_that_are_not_there_are_an_error():
    nibbles, zeros, scales = packing.draw(32, 8, 32, 5)
    words, zeros = packing.gptq(nibbles, zeros)[0], zeros.to(torch.uint8)
    for wrong in (-1, 1):
        with pytest.raises(ArgumentError, match="g_idx: expected groups below 1"):
            layouts.from_gptq_part(words, zeros, scales, torch.full((32,), wrong, dtype=torch.int32))


def test_awq_stands_for_its_numbers():
    nibbles, zeros, scales = packing.draw(96, 24, 32, 6)
    unpacked = [layouts.unpack_columns(words, AWQ) for words in packing.awq(nibbles, zeros)]
    weight = layouts.from_awq(*unpacked, scales, 32)
    assert torch.equal(dequantize(weight), packing.values(nibbles, zeros, scales, torch.arange(96) // 32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_size": 40}, r"weight.scales: expected shape \[2, 16\]"),
        ({"group_size": 36}, "weight.group_size: expected a multiple of 32, got 36"),
        ({"zeros": torch.zeros(3, 16)}, "weight.zeros: expected torch.uint8"),
        ({"order": torch.zeros(64)}, r"weight.order: expected shape \[72\]"),
        ({"groups": torch.zeros(64)}, r"weight.groups: expected shape \[72\]"),
    ],
)
def test_errors_name_the_argument(change, message):
    weight = {
        "packed": torch.zeros(9, 16, dtype=torch.int32),
        "scales": torch.zeros(2 if change.get("group_size") == 36 else 3, 16),
        "zeros": torch.zeros(2 if change.get("group_size") == 36 else 3, 16, dtype=torch.uint8),
        "group_size": 32,
    }
    with pytest.raises(ArgumentError, match=message):
        int4_matmul(torch.zeros(1, 72), Int4Weight(**{**weight, **change}))
