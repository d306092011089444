"""A CPU's linear layers of a checkpoint in 8 bits: expanded when they are loaded, then plain weights."""

import numpy as np
from numpy.typing import NDArray

from headrace_server.quantization.dense import DenseLinears
from headrace_server.quantization.parts import Part
from headrace_server.quantization.scales import scales_name
from headrace_server.quantization.stored import StoredEightBits
from headrace_server.weights.arrays import ArrayCheckpoint
from headrace_server.weights.slice import Slice


class ExpandedLinears(DenseLinears):
    """float32 or bfloat16, whichever is computed with: an 8-bit checkpoint takes as much memory as a plain one."""

    def __init__(self, dtype: int, stored: StoredEightBits) -> None:
        super().__init__(dtype)
        self._stored = stored
        self._expanded = 0

    def description(self) -> str:
        return f"weights of linear layers: {self._expanded} tensors of {self._stored.method}, expanded"

    def _weight(self, checkpoint: ArrayCheckpoint, part: Part, inputs: Slice) -> NDArray:
        scale = scales_name(checkpoint, part.name)
        if scale is None:
            return super()._weight(checkpoint, part, inputs)
        self._expanded += 1
        stored = self._stored
        shape = stored.scale_shape(part.rows.size, inputs.size)
        scales = checkpoint.take_float32(scale, *checkpoint.shape_like(scale, shape), rounded=False).reshape(shape)
        weight = checkpoint.take_eight_bits(f"{part.name}.weight", stored.dtype, part.rows, inputs)
        weight *= _along(1, _along(0, scales, stored.block_outputs, part.rows), stored.block_inputs, inputs)
        return weight


def _along(axis: int, scales: NDArray[np.float32], block: int | None, part: Slice) -> NDArray[np.float32]:
    """That of each entry's block; one of all is left to broadcasting."""
    return scales if block is None else scales.take(np.arange(part.begin, part.end) // block, axis)
