"""Plain weights: one matrix product."""

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import linear

from headrace_server.weights.safetensors import Checkpoint


class UnquantizedLinear:
    """x → x @ weight.T + bias."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight  # [out_features, in_features]
        self.bias = bias  # [out_features]

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class UnquantizedHead:
    """x → x @ weight.T in float32."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight  # [vocab_size, hidden_size]

    def __call__(self, x: Tensor) -> Tensor:
        return linear(x, self.weight).float()


class Unquantized:
    """The method of checkpoints without `quantization_config`."""

    def linear(
        self, checkpoint: Checkpoint, names: Sequence[str], out_features: Sequence[int], in_features: int, bias: bool
    ) -> UnquantizedLinear:
        weight = checkpoint.take_stacked([f"{name}.weight" for name in names], out_features, in_features)
        biases = checkpoint.take_stacked([f"{name}.bias" for name in names], out_features) if bias else None
        return UnquantizedLinear(weight, biases)

    def head(
        self, checkpoint: Checkpoint, name: str, vocab_size: int, hidden_size: int, shared: Tensor | None
    ) -> "UnquantizedHead":
        if shared is not None:
            return UnquantizedHead(shared)
        return UnquantizedHead(checkpoint.take(name, vocab_size, hidden_size))
