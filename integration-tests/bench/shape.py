"""How large a model is, from its config.json: bytes of weights that a step reads, bytes of KV, work for a token."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cases import Weights


@dataclass(frozen=True)
class Shape:
    """Parameters that a step multiplies with, and KV elements of a token. Norms are too small to count."""

    # Of all layers.
    linear: int
    # Of the LM head, which only rows that sample go through. The embedding is looked up, not read.
    head: int
    kv_elements: int

    @property
    def kv_bytes(self) -> int:
        """Of one token, in bfloat16."""
        return 2 * self.kv_elements

    @property
    def prompt_flop(self) -> int:
        """Of one prompt token that nobody samples after: a multiplication and an addition a parameter."""
        return 2 * self.linear

    def weight_bytes(self, weights: Weights) -> float:
        """Read by a step, whatever its rows.

        8-bit: a byte a parameter. 4-bit: 20 bytes for 32 parameters of the layers, as in Q4_1, and 34 for 32 of the
        head, as in Q8_0; scales are counted here because they are a tenth.
        """
        match weights:
            case Weights.BF16:
                return 2 * (self.linear + self.head)
            case Weights.INT8:
                return self.linear + self.head
            case Weights.INT4:
                return self.linear * 20 / 32 + self.head * 34 / 32


def of_config(config: dict[str, Any]) -> Shape:
    """Of a dense Llama-like model."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    kv_heads = config.get("num_key_value_heads") or heads
    attention = hidden * head_dim * (2 * heads + 2 * kv_heads)
    return Shape(
        linear=layers * (attention + 3 * hidden * config["intermediate_size"]),
        head=hidden * config["vocab_size"],
        kv_elements=layers * 2 * kv_heads * head_dim,
    )


def of_directory(model_dir: Path) -> Shape:
    return of_config(json.loads((model_dir / "config.json").read_text()))
