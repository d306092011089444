"""Writing into the cache with Triton, interpreted: alone, and with norms and rotation in one launch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import FEW, TOLERANCE, floats, seeds, tensor

from headrace_kernels.float8 import encode
from headrace_kernels.ops import ArgumentError, HeadNorms, kv_cache_shape, rotate_and_store_kv, store_kv

CACHES = st.sampled_from([None, torch.float8_e4m3fn, torch.float8_e5m2])
SCALES = {"k_scale": 0.37, "v_scale": 2.0}


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def empty_caches(num_kv_heads, head_dim, dtype, block_size=16):
    return [torch.zeros(kv_cache_shape(9, block_size, num_kv_heads, head_dim)).to(dtype) for _ in range(2)]


BATCH = (ints([4, 8, 1], [3, 7, 0], [5, 0, 0]), ints(0, 18, 18, 20), ints(40, 30, 2))
"""A chunk at positions 22 to 39, a row without queries, two tokens at the beginning; 20 tokens."""


def same(got, expected, dtype, cache_dtype):
    """Caches agree as their numbers do. A rounding apart may be a step of an 8-bit float."""
    for one, other in zip(got, expected, strict=True):
        tolerance = TOLERANCE[dtype] if cache_dtype is None else {"atol": 0.02, "rtol": 0.26}
        torch.testing.assert_close(one.float(), other.float(), **tolerance)


@given(
    dtype=floats,
    cache=CACHES,
    heads=st.integers(1, 3),
    head_dim=st.sampled_from([16, 20, 64, 80]),
    block_size=st.sampled_from([16, 32]),
    seed=seeds,
)
@FEW
def test_keys_and_values_are_stored_as_the_definition_stores_them(dtype, cache, heads, head_dim, block_size, seed):
    fused = tensor(20, 3 * heads * head_dim, seed=seed, dtype=dtype, scale=3.0).view(20, 3 * heads, head_dim)
    caches = [empty_caches(heads, head_dim, cache or dtype, block_size) for _ in range(2)]
    for backend, into in zip(("triton", "reference"), caches, strict=True):
        key, value = fused[:, heads : 2 * heads], fused[:, 2 * heads :]
        store_kv(key, value, *into, *BATCH, **SCALES, panels=False, backend=backend)
    for one, other in zip(*caches, strict=True):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_8_bit_float_and_every_tie_is_rounded_as_torch_does(dtype):
    finite = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    finite = finite[finite.isfinite()].sort().values
    numbers = torch.cat([finite, (finite[1:] + finite[:-1]) / 2, torch.tensor([1e9, -1e9, 1e-12, float("nan")])])
    padded = torch.cat([numbers, torch.zeros(-len(numbers) % 64)]).view(1, -1, 64)
    k_cache, v_cache = empty_caches(padded.shape[1], 64, dtype)
    store_kv(padded, padded, k_cache, v_cache, ints([0]), ints(0, 1), ints(1), panels=False, backend="triton")
    assert torch.equal(k_cache[0, :, 0].view(torch.uint8), encode(padded[0], 1.0, dtype).view(torch.uint8))


@given(
    dtype=floats,
    cache=CACHES,
    kv_heads=st.integers(1, 2),
    group=st.sampled_from([1, 3, 4]),
    head_dim=st.sampled_from([16, 64, 80]),
    rotated=st.sampled_from([None, 1.0, 0.5]),
    with_norms=st.booleans(),
    seed=seeds,
)
@FEW
def test_norms_rotation_and_stores_in_one(dtype, cache, kv_heads, group, head_dim, rotated, with_norms, seed):
    num_heads = kv_heads * group
    qkv = tensor(20, (num_heads + 2 * kv_heads) * head_dim + 8, seed=seed, dtype=dtype)[:, 8:]
    norms = None
    if with_norms:
        norms = HeadNorms(*(tensor(head_dim, seed=seed + n, dtype=dtype) for n in (1, 2)), 1e-5)
    cos_sin = None if rotated is None else tensor(50, int(head_dim * rotated), seed=seed + 3).clamp(-1, 1)
    results = []
    for backend in ("triton", "reference"):
        caches = empty_caches(kv_heads, head_dim, cache or dtype)
        used = qkv.clone()
        query = rotate_and_store_kv(
            used,
            num_heads,
            *caches,
            *BATCH,
            norms=norms,
            cos_sin=cos_sin,
            **SCALES,
            panels=False,
            backend=backend,
        )
        results.append((query.clone(), caches))
    (query, caches), (expected_query, expected_caches) = results
    torch.testing.assert_close(query, expected_query, **TOLERANCE[dtype])
    same(caches, expected_caches, dtype, cache)


def test_padding_of_a_captured_graph_is_not_stored():
    """Tokens that no row has, and the token of a row without context."""
    caches = empty_caches(1, 16, torch.float32)
    batch = (ints([4], [5], [6]), ints(0, 1, 2, 2), ints(3, 0, 9))
    rotate_and_store_kv(tensor(5, 3 * 16, seed=1), 1, *caches, *batch, panels=False, backend="triton")
    assert caches[0][4, 0, 2].abs().sum() > 0
    caches[0][4, 0, 2] = 0
    assert not caches[0].any()


def test_what_does_not_fit_together_is_refused():
    caches = empty_caches(2, 16, torch.float32)
    with pytest.raises(ArgumentError, match=r"qkv: 81 columns are not 1 \+ 2 \* 2 heads"):
        rotate_and_store_kv(torch.zeros(20, 81), 1, *caches, *BATCH)
    with pytest.raises(ArgumentError, match="cos_sin: rotary_dim 18 must be even and at most head_dim 16"):
        rotate_and_store_kv(torch.zeros(20, 96), 2, *caches, *BATCH, cos_sin=torch.zeros(50, 18))
