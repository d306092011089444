"""8-bit floats inside Triton kernels, which see a cache of them as bytes (`as_stored`).

FORMAT says what a cache holds: "same" (the activations' type), "e4m3", "e5m2", or "e4m3_by_bits" where the chip has no
instruction for e4m3: then what is read is `STEP["e4m3_by_bits"]` times too small, which scales absorb.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.chip import FLOAT8, capability

STEP = {"same": 1.0, "e4m3": 1.0, "e5m2": 1.0, "e4m3_by_bits": 256.0}
"""What `widen`'s result must be multiplied with."""


def as_stored(cache: Tensor) -> Tensor:
    """A cache as kernels take it."""
    return cache.view(torch.uint8) if cache.element_size() == 1 else cache


def format_of(cache: Tensor) -> str:
    """FORMAT of a cache."""
    if cache.dtype == torch.float8_e5m2:
        return "e5m2"
    if cache.dtype == torch.float8_e4m3fn:
        return "e4m3" if capability() >= FLOAT8 else "e4m3_by_bits"
    return "same"


@triton.jit
def widen(stored, FORMAT: tl.constexpr):
    """What `as_stored` holds, as numbers; exact. 8-bit floats become float16."""
    if FORMAT == "same":
        numbers = stored
    elif FORMAT == "e4m3":
        numbers = stored.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    elif FORMAT == "e5m2":  # the first byte of a float16
        numbers = (stored.to(tl.uint16) << 8).to(tl.float16, bitcast=True)
    else:
        # Sign, exponent and mantissa where float16 has them; its exponent counts from 15, not from 7. Sign extension
        # makes bits 7 to 15 the sign; bit 14 must go. What is not a number comes out as one, 480.
        bits = (stored.to(tl.int8, bitcast=True).to(tl.int16) << 7) & -16385
        numbers = bits.to(tl.float16, bitcast=True)
    return numbers


@triton.jit
def narrow(x, inverse_scale, FORMAT: tl.constexpr, dtype: tl.constexpr):
    """`headrace_kernels.float8.encode`, as bytes; with FORMAT "same" x in dtype."""
    return x.to(dtype) if FORMAT == "same" else rounded(x, inverse_scale, FORMAT)


@triton.jit
def rounded(x, inverse_scale, FORMAT: tl.constexpr):
    """x · inverse_scale as the bits of an 8-bit float; nearest, ties to even. In integers, so that all chips can, and
    agree."""
    MANTISSA: tl.constexpr = 2 if FORMAT == "e5m2" else 3
    BIAS: tl.constexpr = 15 if FORMAT == "e5m2" else 7
    LARGEST: tl.constexpr = 57344.0 if FORMAT == "e5m2" else 448.0
    SMALLEST_NORMAL: tl.constexpr = 2.0 ** (1 - BIAS)
    DROPPED: tl.constexpr = 23 - MANTISSA
    # Adding this to a number below SMALLEST_NORMAL rounds it to whole steps, which are then its last bits.
    ROUNDER: tl.constexpr = 2.0 ** (24 - BIAS - MANTISSA)
    ROUNDER_BITS: tl.constexpr = (24 - BIAS - MANTISSA + 127) << 23
    x = x.to(tl.float32) * inverse_scale
    size = tl.minimum(tl.abs(x), LARGEST)
    bits = size.to(tl.int32, bitcast=True)
    to_even = (1 << (DROPPED - 1)) - 1 + ((bits >> DROPPED) & 1)
    normal = ((bits + to_even) >> DROPPED) - ((127 - BIAS) << MANTISSA)
    small = (size + ROUNDER).to(tl.int32, bitcast=True) - ROUNDER_BITS
    code = tl.where(size < SMALLEST_NORMAL, small, normal)
    code = tl.where(x == x, code, 0x7F)  # not a number
    sign = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
    return (code | sign).to(tl.uint8)
