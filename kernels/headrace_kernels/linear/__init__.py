"""Linear layers whose weights are packed into panels, the order in which products read them. Numpy, no torch.

bfloat16 has no type in numpy: arrays of it are uint16, the bits.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.linear import cpu
from headrace_kernels.memory import Arena
from headrace_kernels.native import BFLOAT16, FLOAT32

DENSE = -1
PANEL_COLUMNS = 16
LINE_BYTES, TILE_LINES = 64, 16


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight matrix [columns, in_features] as panels of 16 columns.

    cpu/lines.h says how a panel lies in memory, quantized_linear/formats.h how a quantized one does.
    """

    panels: NDArray[np.uint8]  # [num_panels * panel bytes]
    num_panels: int
    in_features: int
    kind: int  # DENSE, or the `quantized_linear.Kind` of quantized weights
    bias: NDArray[np.float32] | None  # [num_panels * 16]

    @property
    def nbytes(self) -> int:
        """Bytes that one pass reads."""
        return self.panels.nbytes


class LinearPacker:
    """Makes a `PackedLinear` of several matrices, panel by panel."""

    def __init__(self, arena: Arena, num_panels: int, in_features: int, dtype: int, *, bias: bool) -> None:
        panels = arena.take(num_panels * panel_bytes(in_features, dtype))
        bias_values = np.zeros(num_panels * PANEL_COLUMNS, np.float32) if bias else None
        self._linear = PackedLinear(panels, num_panels, in_features, DENSE, bias_values)
        self._dtype = dtype

    def add(self, weight: NDArray, first_panel: int, step: int = 1) -> None:
        """Put weight [n, in_features], float32 or bfloat16, into panels first_panel, first_panel + step, …"""
        linear = self._linear
        cpu.pack_panels(weight, linear.panels, self._dtype, first_panel, step)

    def add_bias(self, bias: NDArray[np.float32], first_panel: int, step: int = 1) -> None:
        """The bias [n] of the same columns."""
        assert self._linear.bias is not None, "made without a bias"
        place_bias(self._linear.bias, bias, first_panel, step)

    def packed(self) -> PackedLinear:
        """The layer, when all of it was added."""
        return self._linear


def pack_linear(weight: NDArray, dtype: int, arena: Arena | None = None) -> PackedLinear:
    """One matrix [n, in_features], float32 or bfloat16, without bias."""
    packer = LinearPacker(arena or Arena(), num_panels(weight.shape[0]), weight.shape[1], dtype, bias=False)
    packer.add(weight, 0)
    return packer.packed()


def place_bias(biases: NDArray[np.float32], bias: NDArray[np.float32], first_panel: int, step: int) -> None:
    """Put the bias [n] of some columns among those of a layer [num_panels * 16]."""
    count = num_panels(len(bias))
    padded = np.zeros(count * PANEL_COLUMNS, np.float32)
    padded[: len(bias)] = bias
    biases.reshape(-1, PANEL_COLUMNS)[first_panel::step][:count] = padded.reshape(-1, PANEL_COLUMNS)


def linear(x: NDArray, weight: PackedLinear, columns: int) -> NDArray[np.float32]:
    """x [rows, in_features] of the dense weight's type times its first `columns` columns: [rows, columns] float32.

        out[m, n] = sum_k x[m, k] * weight[n, k]

    in float32, one k after another (bfloat16: in the order of the processor's dot products), so a row's bits depend on
    the row alone. Without the bias, which whole models add where they use the result.
    """
    return cpu.linear(x, weight.panels, cpu.DTYPES[x.dtype], columns)


def num_panels(columns: int) -> int:
    """Panels that hold so many columns."""
    return -(-columns // PANEL_COLUMNS)


def panel_bytes(in_features: int, dtype: int) -> int:
    """Bytes of one panel: whole tiles of 64 bytes of K."""
    tile = LINE_BYTES // element_size(dtype)
    return -(-in_features // tile) * TILE_LINES * LINE_BYTES


def element_size(dtype: int) -> int:
    """Bytes of an element."""
    return {FLOAT32: 4, BFLOAT16: 2}[dtype]
