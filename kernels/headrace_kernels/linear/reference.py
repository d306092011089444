"""The definition of `linear` in plain numpy."""

import numpy as np
from numpy.typing import NDArray


def linear(x: NDArray, weight: NDArray) -> NDArray[np.float32]:
    """x [rows, in_features] times weight [columns, in_features]; either may be bfloat16 bits. float64 in between."""
    return (widen(x).astype(np.float64) @ widen(weight).astype(np.float64).T).astype(np.float32)


def widen(values: NDArray) -> NDArray[np.float32]:
    """float32 of bfloat16 bits; float32 stays."""
    return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values
