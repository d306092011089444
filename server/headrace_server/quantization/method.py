"""What a quantization method offers, and which ones there are."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from headrace_kernels.quantize_rows import QuantizedRows
from headrace_server.errors import ConfigError
from headrace_server.log import LOGGER
from headrace_server.quantization.stored import Stored, StoredEightBits, StoredInt4, check_asked
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice


class LinearLayer(Protocol):
    """x [tokens, in_features] → [tokens, out_features].

    `rows_dtype` is the 8-bit type that it rounds x to. Whoever makes x may have done that already, in the same pass.
    None: it takes x as it is, and only so.
    """

    @property
    def rows_dtype(self) -> torch.dtype | None: ...

    def __call__(self, x: Tensor | QuantizedRows) -> Tensor: ...


class QuantizationMethod(Protocol):
    """Makes a linear layer of what a checkpoint stores under some names."""

    @property
    def batch_invariant(self) -> bool:
        """Whether a row's bits depend on the row only, in the layers that it makes."""
        ...

    def linear(
        self,
        checkpoint: Checkpoint,
        names: Sequence[str],
        out_features: Sequence[Slice],
        in_features: Slice,
        bias: bool,
    ) -> LinearLayer:
        """One layer of the modules `names` side by side: its output is theirs, concatenated.

        Of names[i] it has the outputs out_features[i], and all of them read the inputs in_features: a rank's part, or
        the whole. Takes `<name>.weight` and so on from the checkpoint, whatever the method stores there. Raises
        ConfigError where what is stored cannot be cut there.
        """
        ...


def quantization_method(
    stored: Stored | None, asked: str | None, device: torch.device, batch_invariant: bool = False
) -> QuantizationMethod:
    """For a checkpoint that is quantized as `stored`, None meaning plain weights, and what --quantize asks for. Raises
    ConfigError if there is no such way."""
    check_asked(stored, asked)
    if isinstance(stored, StoredInt4):
        from headrace_server.quantization.four_bits import FourBits

        return FourBits(stored, device.type == "cpu", batch_invariant)
    if isinstance(stored, StoredEightBits):
        return _eight_bit_checkpoint(stored, device, batch_invariant)
    if asked is not None:
        from headrace_server.quantization.eight_bits import EightBits

        if device.type == "cpu" or asked not in ("int8", "fp8"):
            raise ConfigError(f"--quantize {asked}: {_ELSEWHERE[asked]}")
        return EightBits.for_chip(asked, batch_invariant)
    from headrace_server.quantization.none import Unquantized

    return Unquantized(batch_invariant)


def _eight_bit_checkpoint(stored: StoredEightBits, device: torch.device, batch_invariant: bool) -> QuantizationMethod:
    from headrace_server.quantization.eight_bit_checkpoint import EightBitCheckpoint

    if device.type == "cpu" or find_spec("triton") is None:
        LOGGER.info("weights of linear layers: those of %s are expanded, for want of kernels for them", stored.method)
        return EightBitCheckpoint(stored, None, batch_invariant, expand=True)
    if stored.has_row_scales:
        LOGGER.info("scales of rows that the checkpoint has are not used: each row gets one of its own")
    return EightBitCheckpoint.for_chip(stored, batch_invariant)


_ELSEWHERE = {
    "int8": "on a CPU only the C++ kernels compute with such weights; leave it out",
    "int4": "only a CPU computes with such weights; take int8, fp8, or a checkpoint of gptq or awq",
    "fp8": "only a GPU computes with such weights; take int8 or int4",
}
