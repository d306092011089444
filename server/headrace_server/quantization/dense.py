"""Linear layers of a CPU whose weights are in the model's own type."""

from collections.abc import Sequence

from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.linear import LinearPacker, PackedLinear, num_panels
from headrace_kernels.memory import Arena
from headrace_server.quantization.parts import Part
from headrace_server.weights.arrays import ArrayCheckpoint
from headrace_server.weights.slice import Slice


class DenseLinears:
    """float32 or bfloat16, whatever the checkpoint holds."""

    def __init__(self, dtype: int) -> None:
        self._dtype = dtype
        self._arena = Arena()

    def make(
        self, checkpoint: ArrayCheckpoint, parts: Sequence[Part], inputs: Slice, *, bias: bool, head: bool = False
    ) -> PackedLinear:
        panels = sum(num_panels(len(part.rows)) for part in parts)
        packer = LinearPacker(self._arena, panels, len(inputs), self._dtype, bias=bias)
        for part in parts:
            packer.add(self._weight(checkpoint, part, inputs), part.first_panel, part.step)
            if bias:
                rounded = self._dtype == native.BFLOAT16
                values = checkpoint.take_float32(f"{part.name}.bias", part.rows, rounded=rounded)
                packer.add_bias(values, part.first_panel, part.step)
        return packer.packed()

    def _weight(self, checkpoint: ArrayCheckpoint, part: Part, inputs: Slice) -> NDArray:
        """[part.rows, inputs] float32, or bfloat16 as uint16."""
        return checkpoint.take(f"{part.name}.weight", part.rows, inputs)

    def description(self) -> str | None:
        return None
