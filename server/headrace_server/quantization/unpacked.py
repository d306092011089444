"""A CPU's linear layers of a checkpoint that GPTQ or AWQ made: unpacked when they are loaded, then plain weights."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.int4_matmul.shifts import AWQ, IN_ORDER, WORD
from headrace_server.errors import ConfigError
from headrace_server.quantization.dense import DenseLinears
from headrace_server.quantization.parts import Part
from headrace_server.quantization.stored import StoredInt4
from headrace_server.weights.arrays import ArrayCheckpoint


class UnpackedLinears(DenseLinears):
    """float32 or bfloat16, whichever is computed with: a 4-bit checkpoint takes as much memory as a plain one."""

    def __init__(self, dtype: int, stored: StoredInt4) -> None:
        super().__init__(dtype)
        self._stored = stored
        self._unpacked = 0

    def description(self) -> str:
        return f"weights of linear layers: {self._unpacked} tensors of {self._stored.method}, unpacked"

    def _weight(self, checkpoint: ArrayCheckpoint, part: Part, in_features: int) -> NDArray:
        if not checkpoint.has(f"{part.name}.qweight"):
            return super()._weight(checkpoint, part, in_features)
        if part.height % WORD or in_features % WORD:
            raise ConfigError(
                f"{part.name}: {part.height} outputs of {in_features} inputs are no whole words of {WORD}"
            )
        self._unpacked += 1
        checkpoint.ignore(f"{part.name}.bias")  # taken where the model has one
        group_size = self._stored.group_size or in_features
        groups = -(-in_features // group_size)
        scales = checkpoint.take_float32(f"{part.name}.scales", groups, part.height, rounded=False)
        zero_words = checkpoint.take_int32(f"{part.name}.qzeros", groups, part.height // WORD)
        if self._stored.method == "awq":
            zeros = _unpack(zero_words, AWQ)
            numbers = _unpack(checkpoint.take_int32(f"{part.name}.qweight", in_features, part.height // WORD), AWQ)
        else:
            zeros = _unpack(zero_words, IN_ORDER) + self._stored.zero_offset
            words = checkpoint.take_int32(f"{part.name}.qweight", in_features // WORD, part.height)
            numbers = _unpack(words.T, IN_ORDER).T
        group_of = np.arange(in_features, dtype=np.int32) // group_size
        if checkpoint.has(f"{part.name}.g_idx"):
            group_of = checkpoint.take_int32(f"{part.name}.g_idx", in_features)
        return np.ascontiguousarray((scales[group_of] * (numbers - zeros[group_of]).astype(np.float32)).T)


def _unpack(words: NDArray[np.int32], shifts: Sequence[int]) -> NDArray[np.int16]:
    """[rows, columns] → [rows, 8 * columns]."""
    return (words[:, :, None] >> np.array(shifts, np.int32) & 15).astype(np.int16).reshape(len(words), -1)
