"""Linear layers, named by how they would be split over ranks.

With one rank all of them are whole. A column-parallel layer's ranks hold slices of its output features, so nothing is
exchanged; a row-parallel layer's ranks hold slices of its input features and add their results up. A model is a
sequence of such pairs, and says which is which; the slicing and the sum belong in this file.
"""

from collections.abc import Sequence

from torch import Tensor

from headrace_server.quantization.method import LinearLayer, QuantizationMethod
from headrace_server.weights.safetensors import Checkpoint


class LinearFactory:
    """Makes a model's linear layers from one checkpoint with one quantization method."""

    def __init__(self, checkpoint: Checkpoint, method: QuantizationMethod) -> None:
        self._checkpoint = checkpoint
        self._method = method

    def column_parallel(
        self, names: Sequence[str], out_features: Sequence[int], in_features: int, bias: bool = False
    ) -> LinearLayer:
        """Modules that read the same input, fused: one product instead of len(names)."""
        return self._method.linear(self._checkpoint, names, out_features, in_features, bias)

    def row_parallel(self, name: str, out_features: int, in_features: int, bias: bool = False) -> LinearLayer:
        """The module that brings a column-parallel one's output back to the residual stream."""
        return self._method.linear(self._checkpoint, [name], [out_features], in_features, bias)

    def head(self, name: str, vocab_size: int, hidden_size: int, shared: Tensor | None = None) -> LinearLayer:
        """The language-model head, from the tensor `name` or the embedding that it is `shared` with. Over ranks it
        would be split by vocabulary."""
        return self._method.head(self._checkpoint, name, vocab_size, hidden_size, shared)
