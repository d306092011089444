"""A CPU's linear layers of a checkpoint in 4 bits: unpacked when they are loaded, then plain weights."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.int4_shifts import AWQ, IN_ORDER, WORD
from headrace_server.errors import ConfigError
from headrace_server.quantization.dense import DenseLinears
from headrace_server.quantization.parts import Part
from headrace_server.quantization.stored import StoredInt4
from headrace_server.weights.arrays import ArrayCheckpoint
from headrace_server.weights.slice import Slice

_Numbers = tuple[NDArray[np.int16], NDArray[np.int16], NDArray[np.float32], str]
"""Numbers [inputs, outputs], zeros and scales [groups, outputs]; the tensor that says each input's group, if there."""


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
        if not checkpoint.has(self._stored.numbers(name)):
            return super()._weight(checkpoint, part, inputs)
        if rows.size % WORD or inputs.size % WORD:
            raise ConfigError(f"{name}: {rows.size} outputs of {inputs.size} inputs are no whole words of {WORD}")
        self._unpacked += 1
        checkpoint.ignore(f"{name}.bias")  # taken where the model has one
        group_size = self._stored.group_size or inputs.size
        groups = -(-inputs.size // group_size)
        read = {"gptq": self._gptq, "awq": self._awq, "compressed-tensors": self._compressed}[self._stored.method]
        numbers, zeros, scales, order = read(checkpoint, name, rows, inputs, groups)
        group_of = np.arange(inputs.begin, inputs.end, dtype=np.int32) // group_size
        if checkpoint.has(order):
            group_of = checkpoint.take_int32(order, inputs)
        return np.ascontiguousarray((scales[group_of] * (numbers - zeros[group_of]).astype(np.float32)).T)

    def _gptq(self, checkpoint: ArrayCheckpoint, name: str, rows: Slice, inputs: Slice, groups: int) -> _Numbers:
        zeros = _unpack(checkpoint.take_int32(f"{name}.qzeros", groups, _words_of(rows)), rows, IN_ORDER)
        words = checkpoint.take_int32(f"{name}.qweight", _words_of(inputs), rows)
        scales = checkpoint.take_float32(f"{name}.scales", groups, rows, rounded=False)
        return _unpack(words.T, inputs, IN_ORDER).T, zeros + self._stored.zero_offset, scales, f"{name}.g_idx"

    def _awq(self, checkpoint: ArrayCheckpoint, name: str, rows: Slice, inputs: Slice, groups: int) -> _Numbers:
        zeros = _unpack(checkpoint.take_int32(f"{name}.qzeros", groups, _words_of(rows)), rows, AWQ)
        numbers = _unpack(checkpoint.take_int32(f"{name}.qweight", inputs, _words_of(rows)), rows, AWQ)
        scales = checkpoint.take_float32(f"{name}.scales", groups, rows, rounded=False)
        return numbers, zeros, scales, f"{name}.g_idx"

    def _compressed(self, checkpoint: ArrayCheckpoint, name: str, rows: Slice, inputs: Slice, groups: int) -> _Numbers:
        """Numbers from -8 to 7, stored 8 higher, and so are zeros; without zeros 8 stands for 0."""
        checkpoint.ignore(f"{name}.weight_shape")
        zeros = np.full((groups, len(rows)), 8, np.int16)
        if checkpoint.has(f"{name}.weight_zero_point"):
            words = checkpoint.take_int32(f"{name}.weight_zero_point", _words_of(rows), groups)
            zeros = _unpack(words.T, rows, IN_ORDER)
        words = checkpoint.take_int32(f"{name}.weight_packed", rows, _words_of(inputs))
        scales = checkpoint.take_float32(f"{name}.weight_scale", rows, groups, rounded=False)
        return _unpack(words, inputs, IN_ORDER).T, zeros, scales.T, f"{name}.weight_g_idx"


def _words_of(axis: Slice) -> Slice:
    """Those that hold its numbers; the first and the last may hold others, too."""
    return Slice(axis.size // WORD, axis.begin // WORD, -(-axis.end // WORD))


def _unpack(words: NDArray[np.int32], axis: Slice, shifts: Sequence[int]) -> NDArray[np.int16]:
    """[rows, words of the axis] → [rows, numbers of the axis]."""
    numbers = (words[:, :, None] >> np.array(shifts, np.int32) & 15).astype(np.int16).reshape(len(words), -1)
    first = axis.begin % WORD
    return numbers[:, first : first + len(axis)]
