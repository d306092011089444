"""Calls the C++ `pack_panels` and `linear`."""

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.native import BFLOAT16, FLOAT32, INT, INT32, POINTER, Kernel, num_threads

_pack_panels = Kernel("pack_panels", POINTER, INT32, INT, INT, INT, POINTER, INT32, INT, INT, INT32)
_linear = Kernel("linear", POINTER, INT32, INT, INT, POINTER, POINTER, INT, INT32)

DTYPES = {np.dtype(np.float32): FLOAT32, np.dtype(np.uint16): BFLOAT16}


def pack_panels(weight: NDArray, panels: NDArray[np.uint8], dtype: int, first_panel: int, step: int) -> None:
    """See `LinearPacker.add`."""
    if weight.strides[1] != weight.itemsize:
        weight = np.ascontiguousarray(weight)
    _pack_panels(
        weight.ctypes.data,
        DTYPES[weight.dtype],
        weight.strides[0] // weight.itemsize,
        *weight.shape,
        panels.ctypes.data,
        dtype,
        first_panel,
        step,
        num_threads(),
    )


def linear(x: NDArray, panels: NDArray[np.uint8], dtype: int, columns: int) -> NDArray[np.float32]:
    """See `headrace_kernels.linear`."""
    x = np.ascontiguousarray(x)
    out = np.empty((x.shape[0], columns), np.float32)
    _linear(x.ctypes.data, dtype, *x.shape, panels.ctypes.data, out.ctypes.data, columns, num_threads())
    return out
