"""Linear layers of checkpoints in 4 bits, with torch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_kernels.int4_matmul import Int4Weight, int4_matmul
from headrace_kernels.int4_matmul.reference import dequantize
from headrace_kernels.quantize_rows import QuantizedRows
from headrace_server.errors import WeightsError
from headrace_server.quantization.four_bit_tensors import take
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
        """Modules that are stored as plain weights stay plain, and with them those that are computed as one with
        them."""
        stored = [checkpoint.has(self.stored.numbers(name)) for name in names]
        if not any(stored):
            return Unquantized(self.batch_invariant).linear(checkpoint, names, out_features, in_features, bias)
        biases = checkpoint.take_stacked([f"{name}.bias" for name in names], out_features) if bias else None
        if not bias:
            for name in names:
                checkpoint.ignore(f"{name}.bias")  # GPTQ's tools store zeros for layers that have none
        modules = list(zip(names, out_features, strict=True))
        if self.unpack or not all(stored):
            plain = [self._plain(checkpoint, name, part, in_features) for name, part in modules]
            return UnquantizedLinear(torch.cat(plain), biases, self.batch_invariant)
        weights = [take(checkpoint, self.stored, name, part, in_features) for name, part in modules]
        return Int4Linear(_side_by_side(weights, names), biases, self.batch_invariant)

    def _plain(self, checkpoint: Checkpoint, name: str, out_features: Slice, in_features: Slice) -> Tensor:
        """[outputs, inputs] in the model's type, inputs in their own order."""
        if not checkpoint.has(self.stored.numbers(name)):
            return checkpoint.take(f"{name}.weight", out_features, in_features)
        weight = take(checkpoint, self.stored, name, out_features, in_features)
        values = dequantize(weight).T.to(checkpoint.dtype)
        if weight.order is None:
            return values
        plain = torch.empty_like(values, memory_format=torch.contiguous_format)
        plain[:, weight.order.long()] = values
        return plain


def _side_by_side(weights: Sequence[Int4Weight], names: Sequence[str]) -> Int4Weight:
    """Their outputs are concatenated; what they read must be in one order."""
    first = weights[0]
    for weight, name in zip(weights, names, strict=True):
        if not _same(weight.order, first.order) or not _same(weight.groups, first.groups):
            raise WeightsError(f"the inputs of '{name}' are in another order than those of '{names[0]}'; {ADVICE}")
    return Int4Weight(
        torch.cat([weight.packed for weight in weights], dim=1),
        torch.cat([weight.scales for weight in weights], dim=1),
        torch.cat([weight.zeros for weight in weights], dim=1),
        first.group_size,
        first.order,
        first.groups,
    )


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))
