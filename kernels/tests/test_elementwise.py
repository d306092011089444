"""The C++ operations on rows against their definitions."""

import pytest
import torch

from headrace_kernels.kv_cache import read_keys, read_values
from headrace_kernels.ops import (
    ArgumentError,
    add_rms_norm,
    kv_cache_shape,
    rms_norm,
    rotary_embedding,
    silu_and_mul,
    store_kv,
)

TOLERANCE = {torch.float32: {"atol": 1e-6, "rtol": 2e-6}, torch.bfloat16: {"atol": 1e-6, "rtol": 8e-3}}
"""float32: a few roundings in another order. bfloat16: one rounding, 2^-8, of nearly equal numbers."""

BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
SIZES = pytest.mark.parametrize("size", [1, 3, 8, 31, 64, 100, 576, 4097])
TOKENS = pytest.mark.parametrize("tokens", [0, 1, 2, 70])


@BOTH
@SIZES
@TOKENS
def test_rms_norm(tokens, size, dtype, isa, generator):
    x = torch.randn(tokens, size, generator=generator).to(dtype)
    weight = torch.randn(size, generator=generator).to(dtype)
    expected = rms_norm(x, weight, 1e-5, backend="reference")
    torch.testing.assert_close(rms_norm(x, weight, 1e-5, backend="cpu"), expected, **TOLERANCE[dtype])


@BOTH
def test_rms_norm_of_heads_that_are_columns_of_a_wider_matrix(dtype, isa, generator):
    fused = torch.randn(11, 15 * 64, generator=generator).to(dtype)
    weight = torch.randn(64, generator=generator).to(dtype)
    heads = fused[:, 9 * 64 : 12 * 64].view(11, 3, 64)
    expected = rms_norm(heads, weight, 1e-6, backend="reference")
    torch.testing.assert_close(rms_norm(heads, weight, 1e-6, backend="cpu"), expected, **TOLERANCE[dtype])


@SIZES
@TOKENS
@pytest.mark.parametrize("x", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("residual", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weight", [torch.float32, torch.bfloat16])
def test_add_rms_norm_in_every_mixture_of_dtypes(x, residual, weight, tokens, size, generator):
    a = torch.randn(tokens, size, generator=generator).to(x)
    b = torch.randn(tokens, size, generator=generator).to(residual)
    w = torch.randn(size, generator=generator).to(weight)
    before = a.clone(), b.clone()
    normed, total = add_rms_norm(a, b, w, 1e-5, backend="cpu")
    expected_normed, expected_total = add_rms_norm(a, b, w, 1e-5, backend="reference")
    assert torch.equal(total, expected_total)
    assert normed.dtype == weight
    torch.testing.assert_close(normed, expected_normed, **TOLERANCE[weight])
    assert torch.equal(a, before[0])
    assert torch.equal(b, before[1])


@BOTH
def test_add_rms_norm_is_the_sum_and_then_rms_norm_bit_for_bit(dtype, isa, generator):
    x, residual = torch.randn(2, 30, 100, generator=generator).to(dtype)
    weight = torch.randn(100, generator=generator).to(dtype)
    normed, total = add_rms_norm(x, residual, weight, 1e-5, backend="cpu")
    assert torch.equal(total, residual + x)
    assert torch.equal(normed, rms_norm(total, weight, 1e-5, backend="cpu"))


@BOTH
@TOKENS
@pytest.mark.parametrize(
    ("head_dim", "rotary_dim"), [(64, 64), (64, 32), (80, 20), (96, 96), (128, 128), (256, 256), (8, 2)]
)
def test_rotary_embedding(head_dim, rotary_dim, tokens, dtype, isa, generator):
    fused = torch.randn(tokens, 7 * head_dim, generator=generator).to(dtype)
    angles = torch.randn(500, rotary_dim, generator=generator)
    positions = torch.randint(500, (tokens,), generator=generator)
    results = []
    for backend in ("cpu", "reference"):
        copy = fused.clone()
        query, key, _ = copy.view(tokens, 7, head_dim).split([4, 2, 1], dim=1)
        rotary_embedding(query, key, angles, positions, backend=backend)
        results.append(copy)
    torch.testing.assert_close(results[0], results[1], atol=2e-6 if dtype == torch.float32 else 4e-3, rtol=8e-3)
    untouched = fused.view(tokens, 7, head_dim).clone()
    untouched[:, :6, :rotary_dim] = results[0].view(tokens, 7, head_dim)[:, :6, :rotary_dim]
    assert torch.equal(results[0], untouched.flatten(1))


@BOTH
@SIZES
@TOKENS
def test_silu_and_mul(tokens, size, dtype, isa, generator):
    gate_up = (torch.randn(tokens, 2 * size, generator=generator) * 5).to(dtype)
    expected = silu_and_mul(gate_up, backend="reference")
    torch.testing.assert_close(silu_and_mul(gate_up, backend="cpu"), expected, **TOLERANCE[dtype])


def test_silu_of_extreme_gates(isa):
    gate_up = torch.tensor([[-1e30, -200.0, -87.0, 0.0, 87.0, 1e30, float("nan")] + [1.0] * 7])
    got = silu_and_mul(gate_up, backend="cpu")[0]
    torch.testing.assert_close(got[1:6], torch.tensor([0.0, -1.43e-36, 0.0, 87.0, 1e30]), atol=1e-30, rtol=1e-6)
    assert got[6].isnan()


def test_bfloat16_results_are_rounded_to_nearest_even(isa):
    """Adding zero leaves only the rounding, which must be torch's own."""
    values = torch.cat([torch.linspace(-3, 3, 4000), torch.tensor([1.00390625, 1.01171875, 3e38, float("inf")])])
    zeros, ones = torch.zeros(1, 4004, dtype=torch.bfloat16), torch.ones(4004)
    got = add_rms_norm(values[None], zeros, ones, 1.0, backend="cpu")[1]
    assert torch.equal(got[0], values.bfloat16())
    nan = torch.full((1, 20), float("nan"))
    assert add_rms_norm(nan, nan.bfloat16(), torch.ones(20), 1.0, backend="cpu")[1].isnan().all()


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


@BOTH
@pytest.mark.parametrize("head_dim", [8, 20, 64, 80, 96, 128, 256])
@pytest.mark.parametrize("block_size", [16, 32])
def test_stored_keys_and_values_are_read_back(head_dim, block_size, dtype, isa, generator):
    """Two rows, one of which has tokens before; what lies in blocks of nobody stays."""
    counts, contexts, tables = [45, 1], ints(45, 40), torch.tensor([[4, 9, 1], [3, 7, 0]], dtype=torch.int32)
    fused = torch.randn(sum(counts), 7 * head_dim, generator=generator).to(dtype)
    _, key, value = fused.view(len(fused), 7, head_dim).split([3, 2, 2], dim=1)
    for backend in ("cpu", "reference"):
        caches = torch.full((2, *kv_cache_shape(10, block_size, 2, head_dim)), -1.0, dtype=dtype)
        store_kv(key, value, *caches, tables, ints(0, 45, 46), contexts, backend=backend)
        for cache, read, stored in zip(caches, (read_keys, read_values), (key, value), strict=True):
            blocks = read(cache, torch.arange(10))[..., :head_dim]
            for i in (0, 20, 44):
                assert torch.equal(blocks[tables[0, i // block_size], :, i % block_size], stored[i]), (backend, i)
            assert torch.equal(blocks[tables[1, 39 // block_size], :, 39 % block_size], stored[45])
            assert (cache[[2, 5, 6, 8]] == -1).all()


@BOTH
def test_values_behind_a_rows_last_position_are_finite_where_they_are_read(dtype, isa):
    caches = torch.full((2, *kv_cache_shape(3, 32, 2, 16)), float("nan"), dtype=dtype)
    new = torch.ones(5, 2, 16, dtype=dtype)
    store_kv(new, new, *caches, ints(1)[None], ints(0, 5), ints(5), backend="cpu")
    values = read_values(caches[1], torch.tensor([1]))
    read = 32 if isa in ("amx", "amx_emulated") else 6 if dtype == torch.bfloat16 else 5
    assert values[:, :, :read].isfinite().all()


def test_position_37_of_blocks_4_9_7_is_in_block_7_at_5():
    k_cache, v_cache = torch.zeros(2, *kv_cache_shape(10, 16, 2, 16))
    store_kv(torch.ones(1, 2, 16), torch.ones(1, 2, 16), k_cache, v_cache, ints(4, 9, 7)[None], ints(0, 1), ints(38))
    assert read_keys(k_cache, torch.tensor([7]))[0, :, 5].sum() == k_cache.sum() == 32


FLOAT = torch.zeros(3, 4, 64)
CACHE = torch.zeros(kv_cache_shape(2, 16, 4, 64))
INDEX = torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: rms_norm(torch.zeros(3, 5), torch.zeros(4), 1e-5, backend=b), r"x: expected shape \[3, 4\]"),
        (lambda b: rms_norm(torch.zeros(3, 4).int(), torch.zeros(4), 1e-5, backend=b), "x: expected torch.float32"),
        (lambda b: add_rms_norm(FLOAT[0], FLOAT[0, :3], FLOAT[0, 0], 1e-5, backend=b), "residual: expected shape"),
        (lambda b: silu_and_mul(torch.zeros(3, 5), backend=b), "gate_up: expected an even second axis, got 5"),
        (lambda b: rotary_embedding(FLOAT, FLOAT, FLOAT[0, :, :63], INDEX, backend=b), "cos_sin: rotary_dim 63 must"),
        (
            lambda b: rotary_embedding(FLOAT, FLOAT, FLOAT[0], INDEX + 4, backend=b),
            r"positions\[0\]: expected in \[0, 4\)",
        ),
        (
            lambda b: rotary_embedding(FLOAT.mT, FLOAT.mT, FLOAT[0, :, :2], INDEX, backend=b),
            "query: expected contiguous",
        ),
        (
            lambda b: store_kv(FLOAT, FLOAT, CACHE, CACHE, ints(0)[None], ints(0, 3, 4), ints(3), backend=b),
            r"query_starts: expected shape \[2\], got \[3\]",
        ),
        (
            lambda b: store_kv(FLOAT, FLOAT, CACHE, CACHE, ints(2)[None], ints(0, 3), ints(3), backend=b),
            r"block_tables\[0, 0\]: expected in \[0, 2\), got 2",
        ),
        (
            lambda b: store_kv(FLOAT, FLOAT, CACHE, CACHE, ints(0)[None], ints(0, 3), ints(2), backend=b),
            r"context_lengths\[0\]: expected in \[3, 17\), got 2",
        ),
        (
            lambda b: store_kv(FLOAT, FLOAT[:, :2], CACHE, CACHE, ints(0)[None], ints(0, 3), ints(3), backend=b),
            "value: expected shape",
        ),
    ],
)
def test_errors_name_the_argument(call, message, backend):
    with pytest.raises(ArgumentError, match=message):
        call(backend)


def test_block_sizes_must_be_powers_of_two():
    with pytest.raises(ValueError, match="block_size 24: must be a power of two, at least 16"):
        kv_cache_shape(1, 24, 1, 64)
