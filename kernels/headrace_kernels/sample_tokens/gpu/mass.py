"""Masses and orders as whole numbers, with the bits of lanes.h and select.h: so CPU and GPU cut at the same token."""

import triton
import triton.language as tl

MASS_OF_ONE = tl.constexpr(4398046511104.0)  # 2^42 units
MASS_REACH = tl.constexpr(30.0)  # a token this far below the likeliest has no mass
LOWEST = tl.constexpr(-3.4028234663852886e38)  # of the finite floats


@triton.jit
def weight_of(gap):
    """e^-gap in [0, 1], with the bits of `exp` in cpu/vector.h; gap is at least 0, and may be infinite."""
    lowest = -87.33654
    rounding_shift = 12582912.0  # adding it rounds to a whole number
    x = 0.0 - gap
    clamped = tl.maximum(x, lowest)
    t = tl.fma(clamped, 1.44269504088896341, rounding_shift)
    n = t - rounding_shift
    # ln 2 in two parts, the first of few bits, so that n times it is exact.
    r = tl.fma(n, 2.12194440e-4, tl.fma(n, -0.693359375, clamped))
    p = tl.fma(r, 1.9875691500e-4, 1.3981999507e-3)
    p = tl.fma(p, r, 8.3334519073e-3)
    p = tl.fma(p, r, 4.1665795894e-2)
    p = tl.fma(p, r, 1.6666665459e-1)
    p = tl.fma(p, r, 5.0000001201e-1)
    p = tl.fma(p * r, r, r + 1.0)
    power = ((t.to(tl.int32, bitcast=True) << 23) + 0x3F800000).to(tl.float32, bitcast=True)  # 2^n
    return tl.where(x < lowest, 0.0, p * power)


@triton.jit
def mass_of(weight):
    """A weight in [0, 1] in whole units of 2^-42, the nearest, ties to even."""
    units = weight * MASS_OF_ONE
    whole = 8388608.0  # 2^23: from here on floats are whole, and below adding it rounds to them
    return tl.where(units < whole, (units + whole) - whole, units).to(tl.int64)


@triton.jit
def mean_of(gaps, total):
    """From the sum of masses times gaps, and the sum of masses."""
    return (gaps.to(tl.float64) / total.to(tl.float64)).to(tl.float32)


@triton.jit
def target_of(share, total):
    """The least mass that holds `share`, above 0, of `total`: at least 1, so that a filter keeps a token."""
    exact = share.to(tl.float64) * total.to(tl.float64)
    floor = exact.to(tl.int64)
    target = tl.where(floor.to(tl.float64) < exact, floor + 1, floor)
    return tl.minimum(target, total)


@triton.jit
def key_of(x):
    """Whole numbers, int32, in the order of the floats; both zeros are one."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@triton.jit
def value_of(key):
    """The float of a key."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
