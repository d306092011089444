"""The definition of the decoder in plain numpy: one sequence at a time, all of it, no cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.linear.reference import widen

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlainLayer:
    """One layer's matrices [columns, in_features] and vectors, float32 or bfloat16 as uint16."""

    input_norm: NDArray
    mlp_norm: NDArray
    query_norm: NDArray | None
    key_norm: NDArray | None
    query: NDArray
    key: NDArray
    value: NDArray
    output: NDArray
    gate: NDArray
    up: NDArray
    down: NDArray
    qkv_bias: NDArray | None  # of queries, keys and values, one after the other
    output_bias: NDArray | None
    window: int | None
    rotary: bool


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """A model. `bfloat16`: values are rounded where the specification says so. `eight_bit_cache`: keys and values are
    rounded to 8 bits instead."""

    layers: Sequence[PlainLayer]
    embedding: NDArray
    norm: NDArray
    head: NDArray
    cos_sin: NDArray[np.float32]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float
    bfloat16: bool
    eight_bit_cache: bool


def logits(model: PlainDecoder, token_ids: Sequence[int]) -> Floats:
    """[tokens, vocab_size] of one sequence."""
    x = _wide(model.embedding)[list(token_ids)]
    for layer in model.layers:
        x = x + _attention(model, layer, _norm(model, x, layer.input_norm))
        normed = _norm(model, x, layer.mlp_norm)
        gate, up = normed @ _wide(layer.gate).T, normed @ _wide(layer.up).T
        x = x + _rounded(model, gate / (1 + np.exp(-gate)) * up) @ _wide(layer.down).T
    return _norm(model, x, model.norm) @ _wide(model.head).T


def _attention(model: PlainDecoder, layer: PlainLayer, x: Floats) -> Floats:
    tokens, dim = len(x), model.head_dim
    heads = model.num_heads + 2 * model.num_kv_heads
    qkv = x @ np.concatenate([_wide(layer.query), _wide(layer.key), _wide(layer.value)]).T
    if layer.qkv_bias is not None:
        qkv = qkv + _wide(layer.qkv_bias)
    query, key, value = np.split(qkv.reshape(tokens, heads, dim), [model.num_heads, heads - model.num_kv_heads], axis=1)
    if layer.query_norm is not None and layer.key_norm is not None:
        query, key = _scaled(model, query, layer.query_norm), _scaled(model, key, layer.key_norm)
    if layer.rotary:
        query, key = _rotated(model, query), _rotated(model, key)
    query = _rounded(model, query)
    key, value = (_cached(model, part) for part in (key, value))
    positions = np.arange(tokens)
    seen = positions[None, :] <= positions[:, None]
    if layer.window is not None:
        seen &= positions[None, :] > positions[:, None] - layer.window
    out = np.empty((tokens, model.num_heads, dim))
    group = model.num_heads // model.num_kv_heads
    for head in range(model.num_heads):
        scores = np.where(seen, query[:, head] @ key[:, head // group].T * dim**-0.5, -np.inf)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = _rounded(model, weights) @ value[:, head // group] / weights.sum(axis=1, keepdims=True)
    attended = _rounded(model, out.reshape(tokens, -1)) @ _wide(layer.output).T
    return attended if layer.output_bias is None else attended + _wide(layer.output_bias)


def _rotated(model: PlainDecoder, heads: Floats) -> Floats:
    dim = model.cos_sin.shape[1]
    cos, sin = np.split(model.cos_sin[: len(heads), None].astype(np.float64), 2, axis=2)
    first, second = heads[..., : dim // 2], heads[..., dim // 2 : dim]
    turned = [first * cos - second * sin, second * cos + first * sin, heads[..., dim:]]
    return np.concatenate(turned, axis=2)


def _norm(model: PlainDecoder, x: Floats, weight: NDArray) -> Floats:
    return _rounded(model, _scaled(model, x, weight))


def _scaled(model: PlainDecoder, x: Floats, weight: NDArray) -> Floats:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + model.eps) * _wide(weight)


def _rounded(model: PlainDecoder, values: Floats) -> Floats:
    """To bfloat16, nearest, ties to even, if the model is."""
    if not model.bfloat16:
        return values
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def _cached(model: PlainDecoder, heads: Floats) -> Floats:
    """As the cache keeps them: [tokens, heads, head_dim]."""
    if not model.eight_bit_cache:
        return _rounded(model, heads)
    scale = np.abs(heads).max(axis=2, keepdims=True) / 127
    return np.where(scale > 0, np.rint(heads / np.where(scale > 0, scale, 1)), 0) * scale


def _wide(values: NDArray) -> Floats:
    return widen(values).astype(np.float64)
