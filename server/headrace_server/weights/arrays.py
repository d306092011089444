"""A checkpoint's tensors for the CPU kernels, without torch. bfloat16 is carried as uint16, its bits."""

import numpy as np
from numpy.typing import NDArray

from headrace_server.weights.bfloat16 import from_bfloat16, to_bfloat16
from headrace_server.weights.files import CheckpointFiles

_TYPES = {"F32": np.float32, "BF16": np.uint16, "F16": np.float16, "F64": np.float64}


class ArrayCheckpoint(CheckpointFiles):
    """The tensors of a model directory as numpy arrays. Those that need no conversion are views of the mapped file."""

    def take(self, name: str, *shape: int) -> NDArray:
        """float32, or bfloat16 as uint16, whichever the file is nearer to."""
        tensor = self.stored(name, shape)
        values = tensor.data.view(_TYPES[tensor.dtype]).reshape(shape)
        return values if tensor.dtype in ("F32", "BF16") else values.astype(np.float32)

    def take_int32(self, name: str, *shape: int) -> NDArray[np.int32]:
        return self.stored(name, shape, ("I32",)).data.view(np.int32).reshape(shape)

    def take_float32(self, name: str, *shape: int, rounded: bool) -> NDArray[np.float32]:
        """float32, a copy; `rounded` to bfloat16 before."""
        values = self.take(name, *shape)
        if rounded and values.dtype == np.float32:
            values = to_bfloat16(values)
        return from_bfloat16(values) if values.dtype == np.uint16 else values.copy()
