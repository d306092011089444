"""Tiny GGUF files for these tests, written with the gguf library as llama.cpp's converter would.

Small enough to convert in milliseconds, with 256-wide rows because that is the block of the K types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS = 256, 512, 2, 4, 2
HEAD_DIM = HIDDEN // HEADS


def byte_alphabet() -> list[str]:
    """GPT-2's letter for each byte: itself where it prints, else the next letter above U+00FF."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


@dataclass(frozen=True)
class TinyTokenizer:
    """Metadata of a tokenizer: special tokens first, then bytes, then merges' results."""

    model: str = "gpt2"
    pre: str | None = "smollm"
    control: tuple[str, ...] = ("<|end|>", "<|start|>", "<|turn|>")
    merges: tuple[str, ...] = ("h e", "l l", "he ll", "hell o", "Ġ w")
    extra: Mapping[str, Any] = field(default_factory=dict)  # further tokenizer.ggml.* keys, None to leave one out

    def metadata(self) -> dict[str, Any]:
        merged = [merge.replace(" ", "") for merge in self.merges]
        tokens = [*self.control, *byte_alphabet(), *merged]
        types = [gguf.TokenType.CONTROL] * len(self.control) + [gguf.TokenType.NORMAL] * (256 + len(merged))
        values = {
            "model": self.model,
            "pre": self.pre,
            "tokens": tokens,
            "token_type": [int(kind) for kind in types],
            "merges": list(self.merges),
            "bos_token_id": 1,
            "eos_token_id": 0,
            "add_bos_token": False,
            **self.extra,
        }
        return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}


def metadata(architecture: str, **extra: Any) -> dict[str, Any]:
    """The configuration keys of a tiny model; `extra` adds keys below the architecture's prefix."""
    values = {
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "block_count": LAYERS,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10_000.0,
        **extra,
    }
    return {f"{architecture}.{key}": value for key, value in values.items() if value is not None}


def shapes(architecture: str, vocab: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of a tiny model and its shape, outermost axis first."""
    layer = {
        "attn_norm.weight": (HIDDEN,),
        "attn_q.weight": (HIDDEN, HIDDEN),
        "attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
        "attn_output.weight": (HIDDEN, HIDDEN),
        "ffn_norm.weight": (HIDDEN,),
        "ffn_gate.weight": (INNER, HIDDEN),
        "ffn_up.weight": (INNER, HIDDEN),
        "ffn_down.weight": (HIDDEN, INNER),
    }
    if architecture == "qwen2":
        layer |= {
            "attn_q.bias": (HIDDEN,),
            "attn_k.bias": (KV_HEADS * HEAD_DIM,),
            "attn_v.bias": (KV_HEADS * HEAD_DIM,),
        }
    if architecture == "qwen3":
        layer |= {"attn_q_norm.weight": (HEAD_DIM,), "attn_k_norm.weight": (HEAD_DIM,)}
    layers = {f"blk.{number}.{name}": shape for number in range(LAYERS) for name, shape in layer.items()}
    return {"token_embd.weight": (vocab, HIDDEN), **layers, "output_norm.weight": (HIDDEN,)}


def random_tensors(architecture: str, vocab: int, seed: int = 7) -> dict[str, np.ndarray]:
    """float32 values for every tensor."""
    generator = np.random.default_rng(seed)
    return {
        name: generator.standard_normal(shape, dtype=np.float32) * np.float32(0.05)
        for name, shape in shapes(architecture, vocab).items()
    }


def write_gguf(
    path: Path,
    architecture: str = "llama",
    block_type: Type = Type.F32,
    tokenizer: TinyTokenizer | None = None,
    config: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Any] | None = None,
    chat_template: str | None = None,
) -> Path:
    """Write a tiny model; matrices in `block_type`, vectors in F32.

    `tensors` replaces or adds tensors: an array (float32, or (uint8 blocks, type)), or None to leave one out.
    """
    writer = gguf.GGUFWriter(path, architecture)
    keys = {**metadata(architecture, **(config or {})), **(tokenizer or TinyTokenizer()).metadata()}
    for key, value in keys.items():
        _add(writer, key, value)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
    vocab = len(keys.get("tokenizer.ggml.tokens", range(300)))
    for name, values in {**random_tensors(architecture, vocab), **(tensors or {})}.items():
        if isinstance(values, tuple):
            blocks, raw_type = values
            writer.add_tensor(name, blocks, raw_dtype=raw_type)
        elif values is not None:
            matrix_type = block_type if values.ndim > 1 else Type.F32
            writer.add_tensor(name, gguf.quants.quantize(values, matrix_type), raw_dtype=matrix_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)
