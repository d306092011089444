"""Linear layers of checkpoints in 8 bits, with torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from headrace_kernels.quantize_rows import QuantizedRows
from headrace_kernels.scaled_matmul import GroupedWeight
from headrace_server.quantization.eight_bits import ScaledLinear, rows_type
from headrace_server.quantization.groups import groups_of
from headrace_server.quantization.method import LinearLayer
from headrace_server.quantization.none import Unquantized, UnquantizedLinear
from headrace_server.quantization.scales import scales_name
from headrace_server.quantization.stored import StoredEightBits
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice

TYPES = {"F8_E4M3": torch.float8_e4m3fn, "I8": torch.int8}


@dataclass(frozen=True)
class EightBitCheckpoint:
    """The method of such a checkpoint."""

    stored: StoredEightBits
    rows: torch.dtype | None  # what rows are rounded to; None: they stay as they are
    batch_invariant: bool = False
    expand: bool = False  # when loading, into plain weights: for a device that has no kernel for 8 bits

    @classmethod
    def for_chip(cls, stored: StoredEightBits, batch_invariant: bool) -> Self:
        """For the chip that kernels are launched on or compiled for."""
        return cls(stored, rows_type(TYPES[stored.dtype]) if stored.rounds_rows else None, batch_invariant)

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
        scales = [scales_name(checkpoint, name) for name in names]
        if not any(scales):
            return Unquantized(self.batch_invariant).linear(checkpoint, names, out_features, in_features, bias)
        modules = list(zip(names, scales, out_features, strict=True))
        biases = checkpoint.take_stacked([f"{name}.bias" for name in names], out_features) if bias else None
        if self.expand or not all(scales):
            plain = [self._plain(checkpoint, *module, in_features) for module in modules]
            return UnquantizedLinear(torch.cat(plain), biases, self.batch_invariant)
        parts = [self._scaled(checkpoint, name, scale, out, in_features) for name, scale, out in modules if scale]
        return ScaledLinear(_side_by_side(parts), biases, self.rows, checkpoint.dtype, self.batch_invariant)

    def _plain(
        self, checkpoint: Checkpoint, name: str, scale: str | None, out_features: Slice, in_features: Slice
    ) -> Tensor:
        """[outputs, inputs] in the model's type."""
        if scale is None:
            return checkpoint.take(f"{name}.weight", out_features, in_features)
        weight = self._scaled(checkpoint, name, scale, out_features, in_features)
        by_input = weight.scales.repeat_interleave(weight.group_size, 0)[: len(in_features)]
        return (weight.values.float() * by_input.T).to(checkpoint.dtype)

    def _scaled(
        self, checkpoint: Checkpoint, name: str, scale: str, out_features: Slice, in_features: Slice
    ) -> GroupedWeight:
        groups = groups_of(in_features, self.stored.block_inputs, name)
        shape = self.stored.scale_shape(out_features.size, in_features.size)
        stored = checkpoint.take_unchanged(scale, *checkpoint.shape_like(scale, shape)).float().reshape(shape)
        output = torch.arange(out_features.begin, out_features.end, device=stored.device)
        by_output = stored[output // (self.stored.block_outputs or out_features.size)]
        return GroupedWeight(
            checkpoint.take_unchanged(f"{name}.weight", out_features, in_features, dtypes=(self.stored.dtype,)),
            by_output[:, list(groups.stored)].T.contiguous(),
            groups.size,
        )


def _side_by_side(weights: Sequence[GroupedWeight]) -> QuantizedRows | GroupedWeight:
    """Their outputs are concatenated."""
    values = torch.cat([weight.values for weight in weights])
    scales = torch.cat([weight.scales for weight in weights], dim=1)
    return (
        QuantizedRows(values, scales[0]) if len(scales) == 1 else GroupedWeight(values, scales, weights[0].group_size)
    )
