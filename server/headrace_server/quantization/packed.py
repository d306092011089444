"""Linear layers of 8-bit and 4-bit weights on a CPU, made of a plain checkpoint or of the blocks of its GGUF.

Blocks of as many bits as were asked for are used as they are: no number in them changes. All else is quantized from the
converted weights, in groups of 32.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_kernels.quantized_linear import Blocks, Kind, QuantizedWeight, pack, quantized_linear
from headrace_server.errors import WeightsError
from headrace_server.log import LOGGER
from headrace_server.quantization.method import LinearLayer
from headrace_server.weights.safetensors import ADVICE, Checkpoint
from headrace_server.weights.source_blocks import SourceBlocks, SourceRows

BLOCKS = {"Q8_0": Kind.INT8, "Q4_0": Kind.INT4_SYMMETRIC, "Q4_1": Kind.INT4, "Q4_K": Kind.INT4_NESTED}
"""GGUF's block types that a kernel reads as they are."""
WIDER = ("Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0")
"""Those to which whoever made a 4-bit GGUF gave more bits, because the tensor needs them."""


@dataclass(frozen=True)
class PackedLinear:
    """x → x @ W.T + bias, W being quantized; x is rounded to int8 in groups of 32."""

    weight: QuantizedWeight  # [out_features, in_features]
    bias: Tensor | None  # [out_features]

    def __call__(self, x: Tensor) -> Tensor:
        out = torch.from_numpy(quantized_linear(_as_numpy(x), self.weight)).to(x.dtype)
        return out if self.bias is None else out + self.bias


@dataclass(frozen=True)
class PackedHead:
    """The language-model head: as `PackedLinear` without a bias, but its logits stay float32."""

    weight: QuantizedWeight  # [vocab_size, hidden_size]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.from_numpy(quantized_linear(_as_numpy(x), self.weight))


@dataclass(frozen=True)
class Packed:
    """The method of a model whose weights are quantized when it is loaded."""

    source: SourceBlocks
    kinds: Mapping[str, Kind]  # what becomes of a tensor that lies in the GGUF in blocks of this type
    otherwise: Kind  # what becomes of all others
    head_otherwise: Kind  # the same for the language-model head
    made_of: Counter[str] = field(default_factory=Counter)  # description → tensors, for the log

    def linear(
        self, checkpoint: Checkpoint, names: Sequence[str], out_features: Sequence[int], in_features: int, bias: bool
    ) -> PackedLinear:
        weights = [f"{name}.weight" for name in names]
        weight = self._pack(checkpoint, weights, out_features, in_features, self.otherwise)
        biases = checkpoint.take_stacked([f"{name}.bias" for name in names], out_features) if bias else None
        return PackedLinear(weight, biases)

    def head(
        self, checkpoint: Checkpoint, name: str, vocab_size: int, hidden_size: int, shared: Tensor | None
    ) -> LinearLayer:
        """The last of a model's layers: also says in the log what all of them were made of."""
        weight = self._pack(checkpoint, [name], [vocab_size], hidden_size, self.head_otherwise)
        made = ", ".join(f"{count} tensors {what}" for what, count in sorted(self.made_of.items()))
        LOGGER.info("weights of linear layers: %s", made)
        return PackedHead(weight)

    def _pack(
        self, checkpoint: Checkpoint, names: Sequence[str], heights: Sequence[int], width: int, otherwise: Kind
    ) -> QuantizedWeight:
        """Several tensors one below the other. Where their kinds differ all are quantized to 8 bits: one product reads
        one kind, and the widest loses least."""
        found = [self._found(name, height, width) for name, height in zip(names, heights, strict=True)]
        kinds = {otherwise if rows is None else self.kinds.get(rows.type, otherwise) for rows in found}
        kind = kinds.pop() if len(kinds) == 1 else Kind.INT8
        parts = [
            self._part(checkpoint, name, (height, width), rows, kind)
            for name, height, rows in zip(names, heights, found, strict=True)
        ]
        return pack(parts, kind)

    def _found(self, name: str, height: int, width: int) -> SourceRows | None:
        rows = self.source.get(name)
        if rows is not None and rows.shape != (height, width):
            raise WeightsError(
                f"tensor '{name}' of the GGUF has shape {list(rows.shape)}, but config.json makes it "
                f"{[height, width]}; {ADVICE}"
            )
        return rows

    def _part(
        self, checkpoint: Checkpoint, name: str, shape: tuple[int, int], rows: SourceRows | None, kind: Kind
    ) -> NDArray[Any] | Blocks:
        if rows is not None and BLOCKS.get(rows.type) is kind:
            checkpoint.ignore(name)
            self.made_of[f"as their blocks of {rows.type}"] += 1
            return Blocks(kind, shape[1], rows.data, rows.order)
        self.made_of[f"quantized to {kind.bits} bits"] += 1
        return _as_numpy(checkpoint.take(name, *shape))


def _as_numpy(x: Tensor) -> NDArray[Any]:
    """A view of a CPU tensor, bfloat16 as uint16; of float16, a float32 copy."""
    if x.dtype is torch.bfloat16:
        return x.view(torch.uint16).numpy()
    return np.asarray(x.float().numpy())
