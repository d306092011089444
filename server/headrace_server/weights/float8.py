"""8-bit floating point as checkpoints hold it ("e4m3fn"), without torch."""

import numpy as np
from numpy.typing import NDArray


def _numbers() -> NDArray[np.float32]:
    bits = np.arange(256)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    size = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    size[bits & 127 == 127] = np.nan
    return np.where(bits < 128, size, -size).astype(np.float32)


FLOAT8 = _numbers()
"""What each of its 256 values is."""
