"""Models of a few thousand weights, made and saved by transformers' own classes, and what transformers says of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

VOCAB_SIZE = 97
PLAIN = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    # Large weights, so that a wrong position, mask or head changes which token wins.
    "initializer_range": 0.25,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


@dataclass(frozen=True)
class TinyModel:
    """The same weights twice: as transformers' module, and as the directory that the shard reads."""

    reference: Any
    directory: Path

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        """transformers' answer, token by token through its own cache."""
        with torch.inference_mode():
            out = self.reference.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                max_new_tokens=num_tokens,
                do_sample=False,
                pad_token_id=0,
            )
        return out[0, len(prompt) :].tolist()

    def logits(self, tokens: list[int]) -> Tensor:
        """[len(tokens), vocab_size] float32, in one forward pass."""
        with torch.inference_mode():
            return self.reference(torch.tensor([tokens])).logits[0].float()


def save(architecture: str, directory: Path, *, seed: int = 0, **changes: Any) -> TinyModel:
    """A model of transformers' `<architecture>ForCausalLM` with seeded weights; biases and norms are random too."""
    torch.manual_seed(seed)
    config = getattr(transformers, f"{architecture}Config")(**{**PLAIN, **changes})
    model = getattr(transformers, f"{architecture}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    model.save_pretrained(directory)
    return TinyModel(model, directory)


def llama(directory: Path, **changes: Any) -> TinyModel:
    """A Llama, the default wherever the architecture does not matter."""
    return save("Llama", directory, **changes)
