"""Linear layers on packed weights: the numbers of a matrix product, and a row's bits whatever it comes with."""

import numpy as np
import pytest

from headrace_kernels import native
from headrace_kernels.linear import Arena, LinearPacker, linear, pack_linear
from headrace_kernels.linear.reference import linear as expected_linear
from headrace_kernels.linear.reference import widen

TYPES = pytest.mark.parametrize("dtype", [native.FLOAT32, native.BFLOAT16], ids=["float32", "bfloat16"])


def matrix(rows, columns, dtype, seed):
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == native.BFLOAT16 else values


@TYPES
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 16, 17, 47, 48, 49, 130])
@pytest.mark.parametrize(("columns", "k"), [(1, 1), (16, 32), (33, 31), (70, 576), (96, 65)])
def test_products(rows, columns, k, dtype, isa):
    x, weight = matrix(rows, k, dtype, 1), matrix(columns, k, dtype, 2)
    got = linear(x, pack_linear(weight, dtype), columns)
    np.testing.assert_allclose(got, expected_linear(x, weight), rtol=0, atol=1e-5 * k**0.5)


@TYPES
def test_a_row_has_the_same_bits_in_any_company(dtype, isa, threads):
    x, weight = matrix(512, 200, dtype, 1), pack_linear(matrix(100, 200, dtype, 2), dtype)
    together = linear(x, weight, 100)
    threads(1)
    for begin, end in ((0, 1), (511, 512), (3, 20), (40, 88), (0, 300)):
        assert np.array_equal(linear(x[begin:end], weight, 100), together[begin:end]), (begin, end)


@TYPES
@pytest.mark.parametrize("stored", [native.FLOAT32, native.BFLOAT16], ids=["from float32", "from bfloat16"])
def test_packing_converts_between_types(stored, dtype):
    weight, eye = matrix(20, 40, stored, 1), np.eye(40, dtype=np.float32)
    x = (eye.view(np.uint32) >> 16).astype(np.uint16) if dtype == native.BFLOAT16 else eye
    got = linear(x, pack_linear(weight, dtype), 20).T
    wide = widen(weight)
    if dtype == native.BFLOAT16:
        bits = wide.view(np.uint32)
        wide = ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    assert np.array_equal(got, wide)


def test_panels_of_two_matrices_take_turns():
    gate, up = matrix(30, 8, native.FLOAT32, 1), matrix(30, 8, native.FLOAT32, 2)
    packer = LinearPacker(Arena(), 4, 8, native.FLOAT32, bias=True)
    for weight, first in ((gate, 0), (up, 1)):
        packer.add(weight, first, 2)
        packer.add_bias(weight[:, 0].copy(), first, 2)
    packed = packer.packed()
    got = linear(np.eye(8, dtype=np.float32), packed, 64).T
    assert np.array_equal(got[:16], gate[:16])
    assert np.array_equal(got[16:32], up[:16])
    assert np.array_equal(got[32:46], gate[16:])
    assert not got[46:48].any()
    assert np.array_equal(packed.bias[48:62], up[16:, 0])
