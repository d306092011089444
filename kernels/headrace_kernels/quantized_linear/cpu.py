"""Calls the C++ `quantized_linear` and what packs weights for it."""

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.native import INT, INT32, POINTER, Kernel, num_threads
from headrace_kernels.quantized_linear.formats import COLUMNS, GROUP, Array, QuantizedWeight

DTYPES = {np.dtype(np.float32): 0, np.dtype(np.uint16): 1}
"""What C++ calls them; bfloat16 is carried as uint16."""

_TILE_ROWS = 16
_TILE_GROUP_BYTES = _TILE_ROWS * (GROUP + 3 * 4)

_linear = Kernel(
    "quantized_linear",
    *(POINTER, INT, INT32),  # x, its stride and dtype
    *(POINTER, INT32),  # weights and their kind
    POINTER,  # room for quantized rows
    *(POINTER, INT),  # out and its stride
    *(INT, INT, INT, INT32),
)
_pack_blocks = Kernel("pack_quantized_blocks", POINTER, INT, POINTER, INT, POINTER, INT32, INT, INT, INT, INT32)
_pack_matrix = Kernel("pack_quantized_matrix", POINTER, INT, INT32, INT, POINTER, INT32, INT, INT, INT, INT32)


def quantized_linear(x: Array, weight: QuantizedWeight) -> NDArray[np.float32]:
    """See `headrace_kernels.quantized_linear.quantized_linear`; the arguments are checked, rows contiguous."""
    rows = len(x)
    width = -(-weight.out_features // COLUMNS) * COLUMNS
    tiles = np.empty(-(-rows // _TILE_ROWS) * -(-weight.in_features // GROUP) * _TILE_GROUP_BYTES, np.uint8)
    out = np.empty((rows, width), np.float32)
    _linear(
        x.ctypes.data,
        x.strides[0] // x.itemsize,
        DTYPES[x.dtype],
        weight.packed.ctypes.data,
        weight.kind,
        tiles.ctypes.data,
        out.ctypes.data,
        width,
        rows,
        weight.out_features,
        weight.in_features,
        num_threads(),
    )
    return out[:, : weight.out_features]


def pack_blocks(blocks: Array, weight: QuantizedWeight, first: int, order: NDArray[np.int64] | None) -> None:
    """Fill rows first ... of `weight` from GGUF blocks; the arguments are checked."""
    _pack_blocks(
        blocks.ctypes.data,
        blocks.strides[0],
        None if order is None else order.ctypes.data,
        len(blocks) if order is None else len(order),
        weight.packed.ctypes.data,
        weight.kind,
        weight.out_features,
        weight.in_features,
        first,
        num_threads(),
    )


def pack_matrix(matrix: Array, weight: QuantizedWeight, first: int) -> None:
    """Fill rows first ... of `weight` by quantizing; the arguments are checked."""
    _pack_matrix(
        matrix.ctypes.data,
        matrix.strides[0] // matrix.itemsize,
        DTYPES[matrix.dtype],
        len(matrix),
        weight.packed.ctypes.data,
        weight.kind,
        weight.out_features,
        weight.in_features,
        first,
        num_threads(),
    )
