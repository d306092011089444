"""Block types → float32 → bfloat16."""

import numpy as np
import pytest
import torch
from block_formats import SIZES, dequantize, random_blocks
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_server.prepare.block_types import SUPPORTED_TYPES, to_float32
from headrace_server.weights.bfloat16 import to_bfloat16


@pytest.mark.parametrize("block_type", SIZES, ids=lambda block_type: block_type.name)
def test_every_block_type_reads_as_its_format_says(block_type):
    blocks = random_blocks(block_type, (5, 512), seed=11)
    np.testing.assert_array_equal(to_float32(blocks, block_type), dequantize(blocks, block_type))


def test_the_types_without_blocks_read_as_numpy_reads_them():
    values = np.array([[1.5, -2.25, 0.0, 65504.0]], dtype=np.float32)
    np.testing.assert_array_equal(to_float32(values, Type.F32), values)
    np.testing.assert_array_equal(to_float32(values.astype(np.float16), Type.F16), values)
    upper_halves = (values.view(np.uint32) >> 16).astype("<u2")
    kept = (upper_halves.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(to_float32(upper_halves.view(np.uint8), Type.BF16), kept)


def test_all_types_that_are_called_supported_are_checked_here():
    assert {*SIZES, Type.F32, Type.F16, Type.BF16} == set(SUPPORTED_TYPES)


@settings(max_examples=300)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=64))
def test_bfloat16_rounds_every_bit_pattern_as_torch_does(patterns):
    values = np.array(patterns, dtype=np.uint32).view(np.float32)
    ours = torch.from_numpy(to_bfloat16(values).view(np.int16).copy()).view(torch.bfloat16)
    theirs = torch.from_numpy(values.copy()).to(torch.bfloat16)
    assert torch.equal(ours.isnan(), theirs.isnan())
    number = ~theirs.isnan()
    assert torch.equal(ours.view(torch.int16)[number], theirs.view(torch.int16)[number])


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        (0x3F808000, 0x3F80),  # a tie goes to the even neighbour below
        (0x3F818000, 0x3F82),  # … and above
        (0x3F808001, 0x3F81),
        (0x7F7FFFFF, 0x7F80),  # the largest float32 is nearer to infinity
        (0xFF800000, 0xFF80),
        (0x80000001, 0x8000),
    ],
)
def test_bfloat16_rounds_to_nearest_even(bits, rounded):
    assert to_bfloat16(np.array([bits], dtype=np.uint32).view(np.float32))[0] == rounded


@pytest.mark.parametrize("bits", [0x7F800001, 0xFF80FFFF, 0xFFFFFFFF])
def test_a_nan_stays_a_nan_when_only_its_low_bits_made_it_one(bits):
    rounded = int(to_bfloat16(np.array([bits], dtype=np.uint32).view(np.float32))[0])
    assert rounded & 0x7F80 == 0x7F80
    assert rounded & 0x007F != 0
