"""What a quantization method offers, and which ones there are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from torch import Tensor

from headrace_server.errors import ConfigError
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.source_blocks import SourceBlocks


class LinearLayer(Protocol):
    """x [tokens, in_features] → [tokens, out_features]."""

    def __call__(self, x: Tensor) -> Tensor: ...


class QuantizationMethod(Protocol):
    """Makes a linear layer of what a checkpoint stores under some names."""

    def linear(
        self, checkpoint: Checkpoint, names: Sequence[str], out_features: Sequence[int], in_features: int, bias: bool
    ) -> LinearLayer:
        """One layer of the modules `names` side by side: its output is theirs, concatenated.

        Takes `<name>.weight` and so on from the checkpoint, whatever the method stores there.
        """
        ...

    def head(
        self, checkpoint: Checkpoint, name: str, vocab_size: int, hidden_size: int, shared: Tensor | None
    ) -> LinearLayer:
        """The language-model head: the weights `name`, hidden [rows, hidden_size] → logits [rows, vocab_size] float32.

        shared  the same weights as the embedding holds them, unless they are the head's alone
        """
        ...


def quantization_method(name: str | None, asked: str | None, model_dir: Path) -> QuantizationMethod:
    """The method for a checkpoint that config.json calls quantized by `name`, None meaning plain weights, and that is
    `asked` to be quantized, to "int8" or "int4". Raises ConfigError if there is no such method."""
    if name is not None:
        raise ConfigError(f"config.json: quantization '{name}' is not supported; use the unquantized checkpoint")
    if asked is not None:
        from headrace_server.quantization import int4, int8

        return {"int8": int8, "int4": int4}[asked].method(SourceBlocks.of(model_dir))
    from headrace_server.quantization.none import Unquantized

    return Unquantized()
