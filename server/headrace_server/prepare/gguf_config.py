"""GGUF metadata as config.json and generation_config.json."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace_server.architectures import MODEL_CLASSES
from headrace_server.prepare.errors import PrepareError
from headrace_server.prepare.gguf_file import GgufFile
from headrace_server.prepare.rope_scaling import rope_scaling

ARCHITECTURES = ("llama", "qwen2", "qwen3", "smollm3")
"""`general.architecture` of the files that can be converted. Mistral models call themselves llama."""

# SmolLM3 leaves the rotary embedding out of every fourth layer; llama.cpp has that number in its code, not in the file.
_SMOLLM3_NOPE_INTERVAL = 4


def model_config(gguf: GgufFile) -> dict[str, Any]:
    """The content of config.json, in the spelling that every version of transformers reads.

    PrepareError for an architecture, a mixture of experts or a layout that the runtime does not compute.
    """
    architecture = gguf.architecture
    if architecture not in ARCHITECTURES:
        raise PrepareError(
            f"{gguf.path}: the architecture {architecture!r} is not supported; supported are {', '.join(ARCHITECTURES)}"
        )
    if int(gguf.get("expert_count") or 0):
        raise PrepareError(f"{gguf.path}: a mixture of experts is not supported; choose a dense model")
    window = int(gguf.get("attention.sliding_window") or 0) if architecture == "llama" else 0
    model_type = "mistral" if window else architecture
    embedding = gguf.tensors.get("token_embd.weight")
    if embedding is None:
        raise PrepareError(f"{gguf.path}: the tensor token_embd.weight is missing; convert the original model again")
    config: dict[str, Any] = {
        "architectures": [MODEL_CLASSES[model_type]],
        "model_type": model_type,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "vocab_size": embedding.shape[0],
        "hidden_size": _count(gguf, "embedding_length"),
        "intermediate_size": _count(gguf, "feed_forward_length"),
        "num_hidden_layers": _count(gguf, "block_count"),
        "max_position_embeddings": _count(gguf, "context_length"),
        **_attention(gguf),
        "rms_norm_eps": shortest_float(gguf.require("attention.layer_norm_rms_epsilon")),
        "rope_theta": shortest_float(gguf.get("rope.freq_base", 10_000.0)),
        "rope_scaling": rope_scaling(gguf),
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        **{f"{name}_token_id": gguf.metadata.get(f"tokenizer.ggml.{key}") for name, key in _TOKEN_IDS.items()},
    }
    return config | _biases(gguf, model_type) | _particulars(model_type, window, config["num_hidden_layers"])


def generation_config(gguf: GgufFile) -> dict[str, Any]:
    """The content of generation_config.json: which tokens begin, end and pad."""
    stops = end_token_ids(gguf)
    config: dict[str, Any] = {"eos_token_id": stops[0] if len(stops) == 1 else stops} if stops else {}
    for name in ("bos", "pad"):
        token = gguf.metadata.get(f"tokenizer.ggml.{_TOKEN_IDS[name]}")
        if token is not None:
            config[f"{name}_token_id"] = token
    return config


def end_token_ids(gguf: GgufFile) -> list[int]:
    """Ids that end an answer: end of sequence, of turn and of message, as far as the file names them."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = (gguf.metadata.get(f"tokenizer.ggml.{key}") for key in keys)
    return list(dict.fromkeys(int(token) for token in ids if token is not None))


def shortest_float(value: float) -> float:
    """The float64 that prints like the float32 `value`: 1e-05, where a plain cast gives 9.999999747378752e-06."""
    return float(str(np.float32(value)))


_TOKEN_IDS = {"bos": "bos_token_id", "eos": "eos_token_id", "pad": "padding_token_id"}


def _count(gguf: GgufFile, key: str) -> int:
    """A positive number that is the same for all layers."""
    value = gguf.require(key)
    if isinstance(value, list):
        if len(set(value)) != 1:
            raise PrepareError(f"{gguf.path}: {gguf.architecture}.{key} differs between layers; that is not supported")
        value = value[0]
    if not isinstance(value, int) or value < 1:
        raise PrepareError(f"{gguf.path}: {gguf.architecture}.{key} is {value}; convert the original model again")
    return value


def _attention(gguf: GgufFile) -> dict[str, int]:
    heads = _count(gguf, "attention.head_count")
    kv_heads = _count(gguf, "attention.head_count_kv") if gguf.get("attention.head_count_kv") is not None else heads
    head_dim = int(gguf.get("attention.key_length") or _count(gguf, "embedding_length") // heads)
    for key in ("attention.value_length", "rope.dimension_count"):
        if (other := int(gguf.get(key) or head_dim)) != head_dim:
            raise PrepareError(
                f"{gguf.path}: {gguf.architecture}.{key} is {other} and the heads are {head_dim} wide; "
                "that is not supported"
            )
    return {"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim}


def _biases(gguf: GgufFile, model_type: str) -> dict[str, bool]:
    """Which groups of projections have a bias, for the architectures where that is a choice."""
    flags = {
        "attention_bias": any(".attn_" in name and name.endswith(".bias") for name in gguf.tensors),
        "mlp_bias": any(".ffn_" in name and name.endswith(".bias") for name in gguf.tensors),
    }
    known = {"llama": ("attention_bias", "mlp_bias"), "qwen3": ("attention_bias",)}
    known["smollm3"] = known["llama"]
    return {name: flags[name] for name in known.get(model_type, ())}


def _particulars(model_type: str, window: int, layers: int) -> dict[str, Any]:
    """What only one architecture has."""
    if model_type == "mistral":
        return {"sliding_window": window}
    if model_type in ("qwen2", "qwen3"):
        return {"use_sliding_window": False, "sliding_window": None}
    if model_type == "smollm3":
        interval = _SMOLLM3_NOPE_INTERVAL
        return {
            "no_rope_layer_interval": interval,
            "no_rope_layers": [int((layer + 1) % interval != 0) for layer in range(layers)],
            "use_sliding_window": False,
            "sliding_window": None,
        }
    return {}
