"""Triton kernels on rows, in the interpreter, against their definitions."""

import pytest
import strategies as draw
import torch
from compiled import weigh
from hypothesis import given
from hypothesis import strategies as st

from headrace_kernels.ops import (
    ArgumentError,
    QuantizedRows,
    add_rms_norm,
    add_rms_norm_quantized,
    gather_embeddings,
    gather_rows,
    quantize_rows,
    rms_norm,
    rotary_embedding,
    silu_and_mul,
    silu_and_mul_quantized,
)

eights = st.sampled_from([torch.int8, torch.float8_e4m3fn])


def assert_same_rows(got: QuantizedRows, expected: QuantizedRows) -> None:
    assert got.values.dtype == expected.values.dtype
    torch.testing.assert_close(got.scales, expected.scales, rtol=1e-6, atol=0)
    assert torch.equal(got.values.view(torch.uint8), expected.values.view(torch.uint8))


@draw.FEW
@given(tokens=draw.tokens, size=draw.sizes, dtype=draw.floats, seed=draw.seeds, strided=st.booleans())
def test_rms_norm(tokens, size, dtype, seed, strided):
    x = draw.tensor(tokens, size + 3 * strided, seed=seed, dtype=dtype)[:, :size]
    weight = draw.tensor(size, seed=seed + 1, dtype=dtype)
    expected = rms_norm(x, weight, 1e-5, backend="reference")
    torch.testing.assert_close(rms_norm(x, weight, 1e-5, backend="triton"), expected, **draw.TOLERANCE[dtype])


@draw.FEW
@given(tokens=draw.tokens, heads=st.integers(1, 5), size=st.integers(1, 40), seed=draw.seeds)
def test_rms_norm_of_heads_that_are_columns_of_a_wider_matrix(tokens, heads, size, seed):
    fused = draw.tensor(tokens, (heads + 2) * size, seed=seed)
    x = fused[:, size:-size].view(tokens, heads, size)
    weight = draw.tensor(size, seed=seed + 1)
    expected = rms_norm(x, weight, 1e-6, backend="reference")
    torch.testing.assert_close(rms_norm(x, weight, 1e-6, backend="triton"), expected, **draw.TOLERANCE[x.dtype])


@draw.FEW
@given(tokens=draw.tokens, size=draw.sizes, x=draw.floats, residual=draw.floats, weight=draw.floats, seed=draw.seeds)
def test_add_rms_norm_in_every_mixture_of_dtypes(tokens, size, x, residual, weight, seed):
    a, b = draw.tensor(tokens, size, seed=seed, dtype=x), draw.tensor(tokens, size, seed=seed + 1, dtype=residual)
    w = draw.tensor(size, seed=seed + 2, dtype=weight)
    normed, total = add_rms_norm(a, b, w, 1e-5, backend="triton")
    expected_normed, expected_total = add_rms_norm(a, b, w, 1e-5, backend="reference")
    assert torch.equal(total, expected_total)
    torch.testing.assert_close(normed, expected_normed, **draw.TOLERANCE[weight])


@draw.FEW
@given(tokens=draw.tokens, size=draw.sizes, dtype=draw.floats, eight=eights, seed=draw.seeds)
def test_fused_and_apart_give_the_same_eight_bits(tokens, size, dtype, eight, seed):
    x, residual = (draw.tensor(tokens, size, seed=seed + i, dtype=dtype) for i in range(2))
    weight = draw.tensor(size, seed=seed + 2, dtype=dtype)
    rows, total = add_rms_norm_quantized(x, residual, weight, 1e-5, eight, backend="triton")
    normed, expected_total = add_rms_norm(x, residual, weight, 1e-5, backend="triton")
    assert torch.equal(total, expected_total)
    assert_same_rows(rows, quantize_rows(normed, eight, backend="reference"))

    gate_up = draw.tensor(tokens, 2 * size, seed=seed, dtype=dtype, scale=3)
    rows = silu_and_mul_quantized(gate_up, eight, backend="triton")
    assert_same_rows(rows, quantize_rows(silu_and_mul(gate_up, backend="triton"), eight, backend="reference"))


@draw.FEW
@given(
    tokens=draw.tokens,
    size=draw.sizes,
    dtype=draw.floats,
    eight=eights,
    seed=draw.seeds,
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
)
def test_quantize_rows(tokens, size, dtype, eight, seed, scale):
    """The cube of a normal number spreads over all magnitudes, float8's subnormal ones too."""
    x = (draw.tensor(tokens, size, seed=seed) ** 3 * scale).to(dtype).clamp(-6e4, 6e4)
    assert_same_rows(quantize_rows(x, eight, backend="triton"), quantize_rows(x, eight, backend="reference"))


def test_every_float8_and_every_tie_between_two_is_rounded_as_torch_does():
    finite = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    middles = (finite[1:] + finite[:-1]) / 2
    x = torch.cat((finite, middles, middles.nextafter(finite[1:]), -middles))[None]
    got = quantize_rows(x, torch.float8_e4m3fn, backend="triton")
    assert got.scales[0] == 1
    assert torch.equal(got.values.view(torch.uint8), x.to(torch.float8_e4m3fn).view(torch.uint8))


@pytest.mark.parametrize("eight", [torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("backend", ["triton", "reference"])
def test_what_is_not_finite_is_seen_in_the_scale_of_its_row_alone(backend, bad, eight):
    x = torch.ones(3, 5)
    x[1, 2] = bad
    assert quantize_rows(x, eight, backend=backend).scales.isfinite().tolist() == [True, False, True]
    rows, _ = add_rms_norm_quantized(x, x, torch.ones(5), 1e-5, eight, backend=backend)
    assert rows.scales.isfinite().tolist()[::2] == [True, True]


@draw.FEW
@given(tokens=draw.tokens, size=draw.sizes, dtype=draw.floats, seed=draw.seeds)
def test_silu_and_mul(tokens, size, dtype, seed):
    gate_up = draw.tensor(tokens, 2 * size + 1, seed=seed, dtype=dtype, scale=5)[:, 1:]
    expected = silu_and_mul(gate_up, backend="reference")
    torch.testing.assert_close(silu_and_mul(gate_up, backend="triton"), expected, **draw.TOLERANCE[dtype])


@pytest.mark.parametrize("largest", [100, 4200])
def test_a_row_that_is_gone_through_in_pieces_has_one_scale(largest):
    gate_up = torch.ones(1, 2 * 4300)
    gate_up[0, largest] = 50
    got = silu_and_mul_quantized(gate_up, torch.int8, backend="triton")
    assert_same_rows(got, quantize_rows(silu_and_mul(gate_up, backend="triton"), torch.int8, backend="reference"))


@draw.FEW
@given(
    tokens=draw.tokens,
    heads=st.integers(1, 9),
    kv_heads=st.integers(1, 5),
    head_dim=st.sampled_from([8, 64, 80]),
    part=st.sampled_from([1.0, 0.5]),
    dtype=draw.floats,
    seed=draw.seeds,
)
def test_rotary_embedding(tokens, heads, kv_heads, head_dim, part, dtype, seed):
    fused = draw.tensor(tokens, (heads + 2 * kv_heads) * head_dim, seed=seed, dtype=dtype)
    cos_sin = draw.tensor(50, int(head_dim * part), seed=seed + 1)
    positions = torch.randint(50, (tokens,), generator=torch.Generator().manual_seed(seed))
    results = []
    for backend in ("triton", "reference"):
        copy = fused.clone()
        parts = copy.view(tokens, heads + 2 * kv_heads, head_dim).split([heads, kv_heads, kv_heads], dim=1)
        rotary_embedding(*parts[:2], cos_sin, positions, backend=backend)
        results.append(copy)
    torch.testing.assert_close(*results, **draw.TOLERANCE[dtype])


@draw.FEW
@given(
    weight=st.tuples(st.integers(1, 9), draw.sizes),
    tokens=st.lists(st.integers(-9, 25), max_size=6),
    last=st.lists(st.integers(-3, 25), min_size=1, max_size=4),
    begin=st.integers(0, 9),
    seed=draw.seeds,
)
def test_gather_embeddings_whatever_the_ids(weight, tokens, last, begin, seed):
    ids = torch.tensor(tokens, dtype=torch.int64), torch.tensor(last)
    table = draw.tensor(*weight, seed=seed)
    got = gather_embeddings(table, *ids, 20, begin, backend="triton")
    assert torch.equal(got, gather_embeddings(table, *ids, 20, begin, backend="reference"))


@pytest.mark.parametrize("backend", ["triton", "reference"])
def test_ids_outside_the_vocabulary_and_rows_outside_the_batch_are_taken_to_the_nearest(backend):
    table = draw.tensor(10, 6, seed=3)
    ids = torch.tensor([25, -1, -2, -9]), torch.tensor([-7, 99, 4])
    assert torch.equal(gather_embeddings(table, *ids, 10, backend=backend), table[[9, 0, 9, 4]])


def test_the_slices_of_ranks_add_up_to_the_embedding():
    table = draw.tensor(10, 6, seed=3)
    ids = torch.tensor([5, -1, -4]), torch.tensor([9, 0, 0, 2])
    slices = [gather_embeddings(table[a:b], *ids, 10, a, backend="triton") for a, b in ((0, 4), (4, 7), (7, 10))]
    assert torch.equal(sum(slices), table[[5, 9, 2]])


@draw.FEW
@given(count=st.integers(1, 9), size=draw.sizes, rows=st.lists(st.integers(0, 100), max_size=6), dtype=draw.floats)
def test_gather_rows(count, size, rows, dtype):
    x = draw.tensor(count, size + 5, seed=count, dtype=dtype)[:, 5:]
    named = torch.tensor(rows, dtype=torch.int64) % count
    assert torch.equal(gather_rows(x, named, backend="triton"), x[named])


@pytest.mark.parametrize("backend", ["triton", "reference"])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: quantize_rows(torch.ones(2, 3), torch.int16, backend=b), "dtype: expected torch.int8 or"),
        (lambda b: quantize_rows(torch.ones(3), torch.int8, backend=b), r"x: expected shape \[any, any\]"),
        (
            lambda b: gather_embeddings(torch.ones(2, 3), torch.ones(2).long(), torch.ones(0).long(), 2, backend=b),
            "last_tokens: expected at least one",
        ),
    ],
)
def test_errors_name_the_argument(call, message, backend):
    with pytest.raises(ArgumentError, match=message):
        call(backend)


def compile_widest() -> None:
    """The longest rows that are kept in registers."""
    x, weight = (torch.empty(*shape, 16384, dtype=torch.bfloat16, device="meta") for shape in ((4,), ()))
    rms_norm(x, weight, 1e-5)
    for eight in (torch.int8, torch.float8_e4m3fn):
        add_rms_norm_quantized(x, x.float(), weight, 1e-5, eight)
        quantize_rows(x, eight)


def test_rows_of_16384_stay_in_registers():
    assert not [kernel for kernel in weigh(f"{__name__}:compile_widest") if not kernel.fits()]
