"""bfloat16 in numpy, which has no type for it: uint16 that holds the bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def to_bfloat16(values: NDArray) -> NDArray[np.uint16]:
    """Round float32 to bfloat16, nearest, ties to even; the result holds the 16 bits as uint16.

    Half of the last kept bit is added before the rest is cut; the kept bit itself makes a tie go to even:
    0x3F80_8000 (between 1.0 and the next) becomes 0x3F80, 0x3F81_8000 becomes 0x3F82. Too large becomes infinite.
    A NaN, whose low bits could be all that makes it one, keeps its upper half and gets the quiet bit.
    """
    values = np.ascontiguousarray(values, dtype=np.float32)
    bits = values.view(np.uint32)
    rounded = bits >> 16
    rounded &= 1
    rounded += 0x7FFF
    rounded += bits
    rounded >>= 16
    is_nan = np.isnan(values)
    if is_nan.any():
        rounded[is_nan] = (bits[is_nan] >> 16) | 0x0040
    return rounded.astype("<u2")


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The same numbers as float32, exactly."""
    wide = bits.astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)
