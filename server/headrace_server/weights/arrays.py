"""A checkpoint's tensors for the CPU kernels, without torch. bfloat16 is carried as uint16, its bits."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace_server.weights.bfloat16 import from_bfloat16, to_bfloat16
from headrace_server.weights.files import FLOATS, CheckpointFiles
from headrace_server.weights.float8 import FLOAT8
from headrace_server.weights.slice import Axis, as_slice

_TYPES = {
    "F32": np.float32,
    "BF16": np.uint16,
    "F16": np.float16,
    "F64": np.float64,
    "I32": np.int32,
    "I8": np.int8,
    "F8_E4M3": np.uint8,
}


class ArrayCheckpoint(CheckpointFiles):
    """The tensors of a model directory as numpy arrays, or slices of their axes. Those that need no conversion are
    views of the mapped file."""

    def take(self, name: str, *axes: Axis) -> NDArray:
        """float32, or bfloat16 as uint16, whichever the file is nearer to."""
        values = self._view(name, axes, FLOATS)
        return values if values.dtype in (np.float32, np.uint16) else values.astype(np.float32)

    def take_int32(self, name: str, *axes: Axis) -> NDArray[np.int32]:
        return self._view(name, axes, ("I32",))

    def take_eight_bits(self, name: str, dtype: str, *axes: Axis) -> NDArray[np.float32]:
        """Of "I8" or "F8_E4M3", whichever `dtype` says: the numbers as float32, a copy."""
        stored = self._view(name, axes, (dtype,))
        return stored.astype(np.float32) if dtype == "I8" else FLOAT8[stored]

    def take_float32(self, name: str, *axes: Axis, rounded: bool) -> NDArray[np.float32]:
        """float32, a copy; `rounded` to bfloat16 before."""
        values = self.take(name, *axes)
        if rounded and values.dtype == np.float32:
            values = to_bfloat16(values)
        return from_bfloat16(values) if values.dtype == np.uint16 else values.copy()

    def _view(self, name: str, axes: Sequence[Axis], dtypes: Sequence[str]) -> NDArray:
        cuts = [as_slice(axis) for axis in axes]
        tensor = self.stored(name, tuple(cut.size for cut in cuts), dtypes)
        values = tensor.data.view(_TYPES[tensor.dtype]).reshape(tensor.shape)
        return values[tuple(slice(cut.begin, cut.end) for cut in cuts)]
