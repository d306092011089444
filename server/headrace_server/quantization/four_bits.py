"""Linear layers of checkpoints that GPTQ or AWQ made, with torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_kernels.errors import ArgumentError
from headrace_kernels.int4_matmul import Int4Weight, int4_matmul
from headrace_kernels.int4_matmul.layouts import from_awq, from_gptq, unpack_columns
from headrace_kernels.int4_matmul.reference import dequantize
from headrace_kernels.int4_matmul.shifts import AWQ, IN_ORDER, WORD
from headrace_kernels.quantize_rows import QuantizedRows
from headrace_server.errors import ConfigError, WeightsError
from headrace_server.quantization.groups import groups_of
from headrace_server.quantization.method import LinearLayer
from headrace_server.quantization.none import Unquantized, UnquantizedLinear
from headrace_server.quantization.stored import StoredInt4
from headrace_server.weights.files import ADVICE
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice


class Int4Linear:
    """x → x @ weight + bias."""

    rows_dtype: torch.dtype | None = None

    def __init__(self, weight: Int4Weight, bias: Tensor | None, batch_invariant: bool) -> None:
        self.weight = weight
        self.bias = bias  # [out_features]
        self._batch_invariant = batch_invariant

    def __call__(self, x: Tensor | QuantizedRows) -> Tensor:
        assert isinstance(x, Tensor)  # rows_dtype is None
        return int4_matmul(x, self.weight, self.bias, batch_invariant=self._batch_invariant)


@dataclass(frozen=True)
class FourBits:
    """The method of such a checkpoint."""

    stored: StoredInt4
    unpack: bool  # when loading, into plain weights: for a CPU, where torch would unpack them in every step
    batch_invariant: bool = False

    def linear(
        self,
        checkpoint: Checkpoint,
        names: Sequence[str],
        out_features: Sequence[Slice],
        in_features: Slice,
        bias: bool,
    ) -> LinearLayer:
        """Modules that are stored as plain weights stay plain."""
        if not any(checkpoint.has(f"{name}.qweight") for name in names):
            return Unquantized(self.batch_invariant).linear(checkpoint, names, out_features, in_features, bias)
        pairs = zip(names, out_features, strict=True)
        weight = _side_by_side([self._weight(checkpoint, name, part, in_features) for name, part in pairs], names)
        biases = checkpoint.take_stacked([f"{name}.bias" for name in names], out_features) if bias else None
        if not bias:
            for name in names:
                checkpoint.ignore(f"{name}.bias")  # GPTQ's tools store zeros for layers that have none
        if self.unpack:
            return UnquantizedLinear(_plain(weight).to(checkpoint.dtype), biases, self.batch_invariant)
        return Int4Linear(weight, biases, self.batch_invariant)

    def _weight(self, checkpoint: Checkpoint, name: str, out_features: Slice, in_features: Slice) -> Int4Weight:
        _expect_words(name, out_features.size, in_features)
        groups = groups_of(in_features, self.stored.group_size, name)
        stored_groups = -(-in_features.size // (self.stored.group_size or in_features.size))
        index = torch.tensor(groups.stored, dtype=torch.int64)
        scales = checkpoint.take_unchanged(f"{name}.scales", stored_groups, out_features)[index]
        zero_words = checkpoint.take_unchanged(
            f"{name}.qzeros", stored_groups, out_features.size // WORD, dtypes=("I32",)
        )
        columns = slice(out_features.begin, out_features.end)
        if self.stored.method == "awq":
            zeros = unpack_columns(zero_words, AWQ)[index, columns]
            words = checkpoint.take_unchanged(
                f"{name}.qweight", in_features, out_features.size // WORD, dtypes=("I32",)
            )
            return from_awq(unpack_columns(words, AWQ)[:, columns], zeros, scales, groups.size)
        zeros = unpack_columns(zero_words, IN_ORDER)[index, columns] + self.stored.zero_offset
        in_words = Slice(in_features.size // WORD, in_features.begin // WORD, in_features.end // WORD)
        words = checkpoint.take_unchanged(f"{name}.qweight", in_words, out_features, dtypes=("I32",))
        try:
            return from_gptq(words, zeros, scales, self._g_idx(checkpoint, name, in_features), groups.size)
        except ArgumentError as error:
            raise WeightsError(f"{name}: {error}; {ADVICE}") from None

    def _g_idx(self, checkpoint: Checkpoint, name: str, in_features: Slice) -> Tensor | None:
        """The group of each input, unless neighbours are one."""
        if not checkpoint.has(f"{name}.g_idx"):
            return None
        g_idx = checkpoint.take_unchanged(f"{name}.g_idx", in_features, dtypes=("I32",))
        group_size = self.stored.group_size or in_features.size
        inputs = torch.arange(in_features.begin, in_features.end, dtype=torch.int32, device=g_idx.device)
        if torch.equal(g_idx, inputs // group_size):
            return None
        if not in_features.is_whole:
            raise ConfigError(
                f"{name}: its inputs are in the order of 'desc_act', which ranks cannot cut; use --num-shard 1"
            )
        return g_idx


def _side_by_side(weights: Sequence[Int4Weight], names: Sequence[str]) -> Int4Weight:
    """Their outputs are concatenated; what they read must be in one order."""
    first = weights[0]
    for weight, name in zip(weights, names, strict=True):
        if not _same(weight.order, first.order):
            raise WeightsError(f"the inputs of '{name}' are in another order than those of '{names[0]}'; {ADVICE}")
    return Int4Weight(
        torch.cat([weight.packed for weight in weights], dim=1),
        torch.cat([weight.scales for weight in weights], dim=1),
        torch.cat([weight.zeros for weight in weights], dim=1),
        first.group_size,
        first.order,
    )


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b if a is None or b is None else torch.equal(a, b)


def _plain(weight: Int4Weight) -> Tensor:
    """[out_features, in_features] float32, inputs in their own order."""
    values = dequantize(weight).T
    if weight.order is None:
        return values.contiguous()
    plain = torch.empty_like(values, memory_format=torch.contiguous_format)
    plain[:, weight.order.long()] = values
    return plain


def _expect_words(name: str, out_features: int, in_features: Slice) -> None:
    if out_features % WORD or in_features.begin % WORD or in_features.end % WORD:
        raise ConfigError(
            f"{name}: {out_features} outputs of inputs {in_features.begin} … {in_features.end} are no whole words of "
            f"{WORD} numbers"
        )
