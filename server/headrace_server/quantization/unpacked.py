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
from headrace_server.weights.slice import Slice


class UnpackedLinears(DenseLinears):
    """float32 or bfloat16, whichever is computed with: a 4-bit checkpoint takes as much memory as a plain one."""

    def __init__(self, dtype: int, stored: StoredInt4) -> None:
        super().__init__(dtype)
        self._stored = stored
        self._unpacked = 0

    def description(self) -> str:
        return f"weights of linear layers: {self._unpacked} tensors of {self._stored.method}, unpacked"

    def _weight(self, checkpoint: ArrayCheckpoint, part: Part, inputs: Slice) -> NDArray:
        name, rows = part.name, part.rows
        if not checkpoint.has(f"{name}.qweight"):
            return super()._weight(checkpoint, part, inputs)
        if rows.size % WORD or inputs.size % WORD:
            raise ConfigError(f"{name}: {rows.size} outputs of {inputs.size} inputs are no whole words of {WORD}")
        self._unpacked += 1
        checkpoint.ignore(f"{name}.bias")  # taken where the model has one
        group_size = self._stored.group_size or inputs.size
        groups = -(-inputs.size // group_size)
        scales = checkpoint.take_float32(f"{name}.scales", groups, rows, rounded=False)
        zero_words = checkpoint.take_int32(f"{name}.qzeros", groups, _words_of(rows))
        if self._stored.method == "awq":
            zeros = _unpack(zero_words, rows, AWQ)
            numbers = _unpack(checkpoint.take_int32(f"{name}.qweight", inputs, _words_of(rows)), rows, AWQ)
        else:
            zeros = _unpack(zero_words, rows, IN_ORDER) + self._stored.zero_offset
            words = checkpoint.take_int32(f"{name}.qweight", _words_of(inputs), rows)
            numbers = _unpack(words.T, inputs, IN_ORDER).T
        group_of = np.arange(inputs.begin, inputs.end, dtype=np.int32) // group_size
        if checkpoint.has(f"{name}.g_idx"):
            group_of = checkpoint.take_int32(f"{name}.g_idx", inputs)
        return np.ascontiguousarray((scales[group_of] * (numbers - zeros[group_of]).astype(np.float32)).T)


def _words_of(axis: Slice) -> Slice:
    """Those that hold its numbers; the first and the last may hold others, too."""
    return Slice(axis.size // WORD, axis.begin // WORD, -(-axis.end // WORD))


def _unpack(words: NDArray[np.int32], axis: Slice, shifts: Sequence[int]) -> NDArray[np.int16]:
    """[rows, words of the axis] → [rows, numbers of the axis]."""
    numbers = (words[:, :, None] >> np.array(shifts, np.int32) & 15).astype(np.int16).reshape(len(words), -1)
    first = axis.begin % WORD
    return numbers[:, first : first + len(axis)]
