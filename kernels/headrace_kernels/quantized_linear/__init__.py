"""Linear layers whose weights are 8-bit or 4-bit integers with a scale for each 32 of them. In numpy, on the CPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.memory import Arena
from headrace_kernels.quantized_linear import cpu, reference
from headrace_kernels.quantized_linear.formats import Array, Kind, QuantizedWeight

__all__ = ["Blocks", "Kind", "QuantizedWeight", "dequantize", "pack", "quantized_linear"]


@dataclass(frozen=True)
class Blocks:
    """A matrix as a GGUF holds it: rows of blocks that `kind` takes as they are."""

    kind: Kind
    in_features: int
    data: NDArray[np.uint8]  # [rows, bytes of a row]
    order: NDArray[np.int64] | None = None  # row i of the matrix is row order[i] of the data


def quantized_linear(x: Array, weight: QuantizedWeight) -> NDArray[np.float32]:
    """Multiply rows by a matrix of quantized weights: about x @ W.T.

    x        [rows, in_features] float32, or uint16 that holds bfloat16
    weight   W [out_features, in_features]
    returns  [rows, out_features] float32

    Each group of 32 elements of a row is rounded to int8 with its own scale (`reference.quantize_rows`), so every
    product of integers is exact. With a[m, g] the row's scales, s[n, g] and b[n, g] the weights' scales and minima:

        out[m, n] = sum over g, in rising order, of
            a[m, g] s[n, g] (sum over k of quant[m, k] u[n, k])  +  a[m, g] (sum over k of quant[m, k]) b[n, g]

    in float32. A row's bits depend on that row only, and are the same with AVX2, AVX-512 and VNNI. One weight
    2 = 0.5 * 4 and one x = 3: x becomes 127 with the scale 3/127, and the result is (3/127 * 0.5) * (127 * 4) = 6.
    """
    if x.ndim != 2 or x.shape[1] != weight.in_features or x.dtype not in cpu.DTYPES:
        raise ValueError(
            f"x: expected [any, {weight.in_features}] of float32, or of bfloat16 as uint16, "
            f"got {list(x.shape)} of {x.dtype}"
        )
    return cpu.quantized_linear(_rows_contiguous(x), weight)


def pack(parts: Sequence[Array | Blocks], kind: Kind, arena: Arena | None = None) -> QuantizedWeight:
    """Several matrices with the same inner axis, one below the other, as one packed matrix of `kind`.

    A part is `Blocks` of that kind, whose numbers are kept, or a matrix [rows, in_features] of float32 or of bfloat16
    as uint16, which is quantized: INT8 so that the largest magnitude of a group is 127 scales, INT4 so that its least
    is 0 and its greatest 15. Raises ValueError for parts that do not fit together, RuntimeError without the library.
    """
    if not native.available():
        raise RuntimeError(f"quantized weights need the C++ kernels: {native.why_unavailable()}")
    heights = [_height(part) for part in parts]
    widths = {part.in_features if isinstance(part, Blocks) else part.shape[1] for part in parts}
    if len(widths) != 1:
        raise ValueError(f"parts: expected the same in_features, got {sorted(widths)}")
    weight = QuantizedWeight.empty(kind, sum(heights), widths.pop(), arena or Arena())
    for first, part in zip(np.cumsum([0, *heights]).tolist(), parts, strict=False):
        _fill(weight, first, part)
    return weight


def dequantize(weight: QuantizedWeight) -> NDArray[np.float32]:
    """The matrix [out_features, in_features] that the packed one stands for."""
    return reference.dequantize(weight)


def _fill(weight: QuantizedWeight, first: int, part: Array | Blocks) -> None:
    if isinstance(part, Blocks):
        elements, size = weight.kind.block
        if part.kind is not weight.kind or part.data.shape[1] * elements != weight.in_features * size:
            raise ValueError(
                f"parts: expected rows of {weight.in_features} elements in blocks of {weight.kind.name}, "
                f"got {part.data.shape[1]} bytes of {part.kind.name}"
            )
        cpu.pack_blocks(_rows_contiguous(part.data), weight, first, part.order)
    elif weight.kind not in (Kind.INT8, Kind.INT4):
        raise ValueError(f"kind: a matrix becomes INT8 or INT4, got {weight.kind.name}")
    elif part.dtype not in cpu.DTYPES:
        raise ValueError(f"parts: expected float32 or bfloat16 as uint16, got {part.dtype}")
    else:
        cpu.pack_matrix(_rows_contiguous(part), weight, first)


def _height(part: Array | Blocks) -> int:
    if isinstance(part, Blocks):
        return len(part.data) if part.order is None else len(part.order)
    return len(part)


def _rows_contiguous(x: Array) -> Array:
    """`x` with its rows anywhere but each in one piece."""
    return x if x.strides[1] == x.itemsize and x.strides[0] % x.itemsize == 0 else np.ascontiguousarray(x)
