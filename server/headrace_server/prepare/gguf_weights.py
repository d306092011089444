"""GGUF tensors under transformers' names, shapes and row order.

llama.cpp rotates neighbouring pairs of a head's elements, transformers pairs element j with j + head_dim/2. Its
converter therefore reorders the rows of the query and key projections of every model that derives from its Llama class
(Llama, Mistral, SmolLM3); the Qwen models keep theirs. Block formats never cross a row, so rows are put back into order
before they are dequantised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType

from headrace_server.prepare.block_types import SUPPORTED_TYPES, to_float32
from headrace_server.prepare.errors import PrepareError
from headrace_server.prepare.gguf_file import GgufFile, GgufTensor
from headrace_server.weights.bfloat16 import to_bfloat16
from headrace_server.weights.source_blocks import SourceTensor, interleaved_to_halves

PIECE_ELEMENTS = 1 << 18
"""Elements dequantised at once, in whole rows: 1 MB of float32, so that the passes over it stay in the cache."""

_PERMUTED = ("llama", "smollm3")

_PLAIN = (GGMLQuantizationType.F32, GGMLQuantizationType.F16, GGMLQuantizationType.BF16)

# Read on the way (rope_freqs makes rope_scaling) or derived from the configuration; not weights.
_NO_WEIGHTS = ("rope_freqs.weight", ".attn_rot_embd.weight", ".rope_freqs.weight")


@dataclass(frozen=True)
class Weight:
    """One tensor of model.safetensors."""

    name: str
    shape: tuple[int, ...]
    source: GgufTensor | None  # None: zeros, for a bias that the format can omit and transformers cannot
    row_order: np.ndarray | None = None  # row i of the result is row row_order[i] of the source


def plan_weights(gguf: GgufFile, config: dict[str, Any]) -> list[Weight]:
    """Every tensor of the converted model, in file order of model.safetensors.

    PrepareError, naming the tensor, when one is missing, has another shape than the metadata implies, is of a type that
    cannot be converted, or is not understood: a weight that nobody reads would be a model that is silently wrong.
    """
    weights = [
        _weight(gguf, theirs, ours, shape, row_order) for theirs, ours, shape, row_order in _layout(gguf, config)
    ]
    used = {weight.source.name for weight in weights if weight.source is not None}
    for name in gguf.tensors:
        if name not in used and not name.endswith(_NO_WEIGHTS):
            raise PrepareError(f"{gguf.path}: the tensor {name} is not part of a {gguf.architecture} model known here")
    return weights


def bfloat16_pieces(weight: Weight) -> Iterator[np.ndarray]:
    """The elements of one weight as uint16 holding bfloat16, whole rows of at most about PIECE_ELEMENTS at a time."""
    rows = weight.shape[0]
    width = int(np.prod(weight.shape[1:], dtype=np.int64))
    step = max(1, PIECE_ELEMENTS // max(1, width))
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        if weight.source is None:
            yield np.zeros((stop - start) * width, dtype="<u2")
        else:
            chosen = slice(start, stop) if weight.row_order is None else weight.row_order[start:stop]
            yield _as_bfloat16(weight.source.data[chosen], weight.source.type)


def source_tensors(weights: Sequence[Weight], config: dict[str, Any]) -> dict[str, SourceTensor]:
    """Where the matrices that lie in blocks are to be found in the GGUF, by the converted tensors' names."""
    return {
        weight.name: SourceTensor(
            type=weight.source.type.name,
            offset=weight.source.offset,
            shape=(weight.shape[0], weight.shape[1]),
            row_bytes=weight.source.data.shape[1],
            interleaved_head_dim=None if weight.row_order is None else config["head_dim"],
        )
        for weight in weights
        if weight.source is not None and len(weight.shape) == 2 and weight.source.type not in _PLAIN
    }


def _as_bfloat16(rows: np.ndarray, block_type: GGMLQuantizationType) -> np.ndarray:
    if block_type == GGMLQuantizationType.BF16:
        return np.ascontiguousarray(rows).view("<u2")  # as they are: nothing to round
    return to_bfloat16(to_float32(rows, block_type))


_Row = tuple[str, str, tuple[int, ...], np.ndarray | None]


def _layout(gguf: GgufFile, config: dict[str, Any]) -> Iterator[_Row]:
    """(their name, our name, shape, row order) of every tensor that a model of this configuration can have."""
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    yield "token_embd.weight", "model.embed_tokens.weight", (vocab, hidden), None
    for layer in range(config["num_hidden_layers"]):
        for theirs, ours, shape, row_order in _layer_layout(gguf.architecture, config):
            yield f"blk.{layer}.{theirs}", f"model.layers.{layer}.{ours}", shape, row_order
    yield "output_norm.weight", "model.norm.weight", (hidden,), None
    if not config["tie_word_embeddings"]:
        yield "output.weight", "lm_head.weight", (vocab, hidden), None


def _layer_layout(architecture: str, config: dict[str, Any]) -> Sequence[_Row]:
    hidden, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    permuted, biased = architecture in _PERMUTED, _biased(config)
    q_order = interleaved_to_halves(heads, head_dim) if permuted else None
    k_order = interleaved_to_halves(kv_heads, head_dim) if permuted else None
    norms: list[_Row] = [
        ("attn_norm.weight", "input_layernorm.weight", (hidden,), None),
        ("ffn_norm.weight", "post_attention_layernorm.weight", (hidden,), None),
    ]
    if architecture == "qwen3":
        norms += [
            ("attn_q_norm.weight", "self_attn.q_norm.weight", (head_dim,), None),
            ("attn_k_norm.weight", "self_attn.k_norm.weight", (head_dim,), None),
        ]
    linears: list[tuple[str, str, int, int, np.ndarray | None]] = [  # theirs, ours, rows, columns, row order
        ("attn_q", "self_attn.q_proj", heads * head_dim, hidden, q_order),
        ("attn_k", "self_attn.k_proj", kv_heads * head_dim, hidden, k_order),
        ("attn_v", "self_attn.v_proj", kv_heads * head_dim, hidden, None),
        ("attn_output", "self_attn.o_proj", hidden, heads * head_dim, None),
        ("ffn_gate", "mlp.gate_proj", inner, hidden, None),
        ("ffn_up", "mlp.up_proj", inner, hidden, None),
        ("ffn_down", "mlp.down_proj", hidden, inner, None),
    ]
    matrices: list[_Row] = [
        (f"{theirs}.weight", f"{ours}.weight", (rows, columns), order) for theirs, ours, rows, columns, order in linears
    ]
    biases: list[_Row] = [
        (f"{theirs}.bias", f"{ours}.bias", (rows,), order)
        for theirs, ours, rows, _, order in linears
        if theirs in biased
    ]
    return norms + matrices + biases


def _biased(config: dict[str, Any]) -> set[str]:
    """The projections that have a bias; transformers' flags switch whole groups of them.

    Qwen2 has no flag: its query, key and value always have one. Mistral never has any.
    """
    if config["model_type"] == "qwen2":
        return {"attn_q", "attn_k", "attn_v"}
    attention = {"attn_q", "attn_k", "attn_v", "attn_output"} if config.get("attention_bias") else set()
    mlp = {"ffn_gate", "ffn_up", "ffn_down"} if config.get("mlp_bias") else set()
    return attention | mlp


def _weight(gguf: GgufFile, theirs: str, ours: str, shape: tuple[int, ...], row_order: np.ndarray | None) -> Weight:
    tensor = gguf.tensors.get(theirs)
    if tensor is None:
        if theirs.endswith(".bias"):
            return Weight(ours, shape, None)
        raise PrepareError(f"{gguf.path}: the tensor {theirs} is missing; convert the original model again")
    if tensor.shape != shape:
        raise PrepareError(
            f"{gguf.path}: the tensor {theirs} has the shape {list(tensor.shape)} and its metadata implies "
            f"{list(shape)}; convert the original model again"
        )
    if tensor.type not in SUPPORTED_TYPES:
        names = ", ".join(block_type.name for block_type in SUPPORTED_TYPES)
        raise PrepareError(
            f"{gguf.path}: the tensor {theirs} is of type {tensor.type.name}, which cannot be converted; "
            f"choose a file with {names}"
        )
    return Weight(ours, shape, tensor, row_order)
