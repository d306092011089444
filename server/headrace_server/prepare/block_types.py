"""Numbers: any supported GGUF block type to float32."""

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
