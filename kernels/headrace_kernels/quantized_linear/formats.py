"""How quantized weights lie in memory: the kinds, and a packed matrix. formats.h says the same to C++."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.memory import Arena

Array = NDArray[Any]

COLUMNS = 16
"""Output columns of a panel."""
GROUP = 32
"""Elements of the inner axis that share a scale."""
LINE = 64
"""Bytes; panels and the factors at their beginning are whole lines."""
NESTED = 8
"""Groups that share the outer factors of INT4_NESTED."""


class Kind(IntEnum):
    """What is kept of a group of 32 weights w = scale * u + minimum; u is an unsigned integer of 8 or 4 bits."""

    INT8 = 0
    """scale float16, minimum = -128 scale. GGUF's Q8_0."""
    INT4_SYMMETRIC = 1
    """scale float16, minimum = -8 scale. Q4_0."""
    INT4 = 2
    """scale and minimum float16. Q4_1."""
    INT4_NESTED = 3
    """d, e float16 of eight groups, s, t uint8 of each: scale = d s, minimum = -e t. Q4_K."""

    @property
    def bits(self) -> int:
        """Of one quant."""
        return 8 if self is Kind.INT8 else 4

    @property
    def block(self) -> tuple[int, int]:
        """Elements and bytes of the GGUF block that holds the same."""
        return _BLOCKS[self]

    def factor_bytes(self, groups: int) -> int:
        """Bytes of the scales and minima at the beginning of a panel."""
        if self is Kind.INT4_NESTED:
            size = -(-groups // NESTED) * (2 + NESTED) * 2 * COLUMNS
        else:
            size = groups * COLUMNS * (4 if self is Kind.INT4 else 2)
        return -(-size // LINE) * LINE

    def panel_bytes(self, groups: int) -> int:
        """Bytes of 16 columns."""
        return self.factor_bytes(groups) + groups * COLUMNS * GROUP * self.bits // 8


_BLOCKS = {Kind.INT8: (32, 34), Kind.INT4_SYMMETRIC: (32, 18), Kind.INT4: (32, 20), Kind.INT4_NESTED: (256, 144)}


@dataclass(frozen=True)
class QuantizedWeight:
    """A matrix [out_features, in_features] of quantized weights, packed for the product."""

    kind: Kind
    out_features: int
    in_features: int
    packed: NDArray[np.uint8]  # [panels * bytes of a panel], beginning at a multiple of 64 bytes

    @classmethod
    def empty(cls, kind: Kind, out_features: int, in_features: int, arena: Arena) -> "QuantizedWeight":
        """All zeros, to be filled in place."""
        size = -(-out_features // COLUMNS) * kind.panel_bytes(-(-in_features // GROUP))
        return cls(kind, out_features, in_features, arena.take(size))

    @property
    def nbytes(self) -> int:
        """What one product reads of it."""
        return self.packed.nbytes
