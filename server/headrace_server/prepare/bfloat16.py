"""Numbers: any supported GGUF block type to float32, and float32 to bfloat16."""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize

SUPPORTED_TYPES = (
    Type.F32,
    Type.F16,
    Type.BF16,
    Type.Q8_0,
    Type.Q4_0,
    Type.Q4_1,
    Type.Q5_0,
    Type.Q5_1,
    Type.Q4_K,
    Type.Q5_K,
    Type.Q6_K,
)
"""Block types that can be converted. Q5_0 and Q5_1 are what K mixtures use for rows that 256 does not divide."""


def to_float32(rows: np.ndarray, block_type: Type) -> np.ndarray:
    """Dequantise rows as they lie in the file: [..., columns or bytes] → [..., columns] float32."""
    return dequantize(np.ascontiguousarray(rows), block_type)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
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
