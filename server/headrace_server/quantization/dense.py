"""Linear layers of a CPU whose weights are in the model's own type."""

from collections.abc import Sequence

from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.linear import LinearPacker, PackedLinear, num_panels
from headrace_kernels.memory import Arena
from headrace_server.quantization.parts import Part
from headrace_server.weights.arrays import ArrayCheckpoint


class DenseLinears:
    """float32 or bfloat16, whatever the checkpoint holds."""

    def __init__(self, dtype: int) -> None:
        self._dtype = dtype
        self._arena = Arena()

    def make(
        self, checkpoint: ArrayCheckpoint, parts: Sequence[Part], in_features: int, *, bias: bool, head: bool = False
    ) -> PackedLinear:
        panels = sum(num_panels(part.end - part.begin) for part in parts)
        packer = LinearPacker(self._arena, panels, in_features, self._dtype, bias=bias)
        for part in parts:
            weight = self._weight(checkpoint, part, in_features)
            packer.add(weight[part.begin : part.end], part.first_panel, part.step)
            if bias:
                rounded = self._dtype == native.BFLOAT16
                values = checkpoint.take_float32(f"{part.name}.bias", part.height, rounded=rounded)
                packer.add_bias(values[part.begin : part.end], part.first_panel, part.step)
        return packer.packed()

    def _weight(self, checkpoint: ArrayCheckpoint, part: Part, in_features: int) -> NDArray:
        """[part.height, in_features] float32, or bfloat16 as uint16."""
        return checkpoint.take(f"{part.name}.weight", part.height, in_features)

    def description(self) -> str | None:
        return None
