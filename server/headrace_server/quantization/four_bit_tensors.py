"""What a rank takes of a module that a checkpoint stores in 4 bits, in the form that is multiplied."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_kernels.errors import ArgumentError
from headrace_kernels.int4_matmul import Int4Weight
from headrace_kernels.int4_matmul.layouts import from_awq, from_gptq, from_gptq_part, unpack_columns
from headrace_kernels.int4_shifts import AWQ, IN_ORDER, WORD
from headrace_server.errors import ConfigError, WeightsError
from headrace_server.quantization.groups import Groups, groups_of
from headrace_server.quantization.stored import StoredInt4
from headrace_server.weights.files import ADVICE
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice


def take(checkpoint: Checkpoint, stored: StoredInt4, name: str, out_features: Slice, in_features: Slice) -> Int4Weight:
    """Raises ConfigError if a rank's part can't be cut there."""
    if out_features.size % WORD or in_features.begin % WORD or in_features.end % WORD:
        raise ConfigError(
            f"{name}: {out_features.size} outputs of inputs {in_features.begin} … {in_features.end} are no whole words "
            f"of {WORD} numbers"
        )
    part = _Part(checkpoint, stored, name, out_features, in_features)
    try:
        return {"gptq": part.gptq, "awq": part.awq, "compressed-tensors": part.compressed}[stored.method]()
    except ArgumentError as error:
        raise WeightsError(f"{name}: {error}; {ADVICE}") from None


@dataclass(frozen=True)
class _Part:
    """Of one module."""

    checkpoint: Checkpoint
    stored: StoredInt4
    name: str
    out_features: Slice
    in_features: Slice

    def gptq(self) -> Int4Weight:
        zeros = self._columns(self._words("qzeros", self._stored_groups, self._out_words), IN_ORDER)
        words = self._words("qweight", self._in_words, self.out_features)
        return self._by_words_of_inputs(words, zeros + self.stored.zero_offset, self._scales(), "g_idx")

    def awq(self) -> Int4Weight:
        zeros = self._columns(self._words("qzeros", self._stored_groups, self._out_words), AWQ)
        numbers = self._columns(self._words("qweight", self.in_features, self._out_words), AWQ)
        groups = self._groups()
        index = list(groups.stored)
        return from_awq(numbers, zeros[index], self._scales()[index], groups.size)

    def compressed(self) -> Int4Weight:
        """Numbers from -8 to 7, stored 8 higher, and so are zeros; without zeros 8 stands for 0."""
        self.checkpoint.ignore(f"{self.name}.weight_shape")
        scales = self.checkpoint.take_unchanged(f"{self.name}.weight_scale", self.out_features, self._stored_groups)
        scales = _as_halves(scales.T).contiguous()
        zeros = torch.full(scales.shape, 8, dtype=torch.uint8, device=scales.device)
        if self.checkpoint.has(f"{self.name}.weight_zero_point"):
            words = self._words("weight_zero_point", self._out_words, self._stored_groups)
            zeros = self._columns(words.T, IN_ORDER)
        words = self._words("weight_packed", self.out_features, self._in_words).T
        return self._by_words_of_inputs(words, zeros, scales, "weight_g_idx")

    def _by_words_of_inputs(self, words: Tensor, zeros: Tensor, scales: Tensor, kind: str) -> Int4Weight:
        """`zeros` and `scales`: of all the layer's groups. `kind`: of the tensor that says each input's group."""
        group_of = self._group_of(kind)
        if group_of is not None and not self.in_features.is_whole:
            return from_gptq_part(words, zeros, scales, group_of)
        groups = self._groups()
        index = list(groups.stored)
        return from_gptq(words, zeros[index], scales[index], group_of, groups.size)

    def _group_of(self, kind: str) -> Tensor | None:
        """Of each input; None if neighbours are a group."""
        if self.stored.act_order and not self.in_features.is_whole:
            # Whatever it says: which kernels there will be must be known before a checkpoint is.
            return self._words(kind, self.in_features)
        if not self.checkpoint.has(f"{self.name}.{kind}"):
            return None
        group_of = self._words(kind, self.in_features)
        inputs = torch.arange(self.in_features.begin, self.in_features.end, dtype=torch.int32, device=group_of.device)
        neighbours = inputs // (self.stored.group_size or self.in_features.size)
        return None if torch.equal(group_of, neighbours) else group_of

    def _groups(self) -> Groups:
        return groups_of(self.in_features, self.stored.group_size, self.name)

    def _scales(self) -> Tensor:
        return _as_halves(self.checkpoint.take_unchanged(f"{self.name}.scales", self._stored_groups, self.out_features))

    def _words(self, kind: str, *axes: int | Slice) -> Tensor:
        return self.checkpoint.take_unchanged(f"{self.name}.{kind}", *axes, dtypes=("I32",))

    def _columns(self, words: Tensor, shifts: tuple[int, ...]) -> Tensor:
        """Numbers of words of outputs: this part's."""
        return unpack_columns(words, shifts)[:, self.out_features.begin : self.out_features.end]

    @property
    def _stored_groups(self) -> int:
        return -(-self.in_features.size // (self.stored.group_size or self.in_features.size))

    @property
    def _out_words(self) -> int:
        return self.out_features.size // WORD

    @property
    def _in_words(self) -> Slice:
        inputs = self.in_features
        return Slice(inputs.size // WORD, inputs.begin // WORD, inputs.end // WORD)


def _as_halves(scales: Tensor) -> Tensor:
    """In float16, as most checkpoints have them: kernels are compiled for a type before a checkpoint is there. In
    float32 if that would change one."""
    halves = scales.half()
    return halves if scales.is_meta or torch.equal(halves.float(), scales.float()) else scales.float()
