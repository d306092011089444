"""What a quantization method offers, and which ones there are."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from headrace_server.errors import ConfigError
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice


class LinearLayer(Protocol):
    """x [tokens, in_features] → [tokens, out_features]."""

    def __call__(self, x: Tensor) -> Tensor: ...


class QuantizationMethod(Protocol):
    """Makes a linear layer of what a checkpoint stores under some names."""

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


def quantization_method(name: str | None) -> QuantizationMethod:
    """The method that config.json names, None meaning plain weights. Raises ConfigError if it is unknown."""
    if name is not None:
        raise ConfigError(f"config.json: quantization '{name}' is not supported; use the unquantized checkpoint")
    from headrace_server.quantization.none import Unquantized

    return Unquantized()
