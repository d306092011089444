"""How a GGUF stretches the rotary embedding, as config.json's `rope_scaling`.

Linear and YaRN scaling are metadata. Llama 3's is not: its converter writes the finished per-frequency factors as the
tensor `rope_freqs.weight`, so the four numbers that made them are found again here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace_server.prepare.errors import PrepareError
from headrace_server.prepare.gguf_file import GgufFile

LLAMA3_PUBLISHED = (1.0, 4.0, 8192)
"""low_freq_factor, high_freq_factor, original context: the same in every Llama 3.1, 3.2 and 3.3."""

_TOLERANCE = 1e-3  # relative; the factors are float32 and may have been stored with fewer bits


def rope_scaling(gguf: GgufFile) -> dict[str, Any] | None:
    """The content of `rope_scaling`, or None for plain RoPE. PrepareError for a kind that the runtime lacks."""
    kind = str(gguf.get("rope.scaling.type") or "")
    factor = float(gguf.get("rope.scaling.factor") or gguf.get("rope.scale_linear") or 0.0)
    if gguf.tensors.keys() & {"rope_factors_long.weight", "rope_factors_short.weight"} or kind == "longrope":
        raise PrepareError(f"{gguf.path}: the RoPE scaling 'longrope' is not supported; choose another model")
    if "rope_freqs.weight" in gguf.tensors:
        if kind in ("linear", "yarn"):
            raise PrepareError(f"{gguf.path}: has both {kind} scaling and rope_freqs.weight; that is not supported")
        return _llama3(gguf)
    if kind == "yarn":
        return _yarn(gguf, factor)
    if kind in ("", "none", "linear"):
        return {"rope_type": "linear", "factor": factor} if factor not in (0.0, 1.0) and kind != "none" else None
    raise PrepareError(f"{gguf.path}: the RoPE scaling {kind!r} is not supported; choose another model")


def _yarn(gguf: GgufFile, factor: float) -> dict[str, Any]:
    original = gguf.get("rope.scaling.original_context_length")
    if factor <= 0 or not original:
        raise PrepareError(f"{gguf.path}: YaRN scaling without its factor or original context; convert the model again")
    scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": int(original)}
    for ours, theirs in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
        if (value := gguf.get(f"rope.scaling.{theirs}")) is not None:
            scaling[ours] = float(value)
    # llama.cpp multiplies its attn_factor with YaRN's own 0.1 ln(factor) + 1; transformers takes the product.
    attn_factor = gguf.get("rope.scaling.attn_factor") or gguf.get("rope.scaling.yarn_attn_factor")
    if attn_factor and float(attn_factor) != 1.0:
        scaling["attention_factor"] = float(attn_factor) * (0.1 * float(np.log(factor)) + 1.0)
    return scaling


def llama3_factors(
    inverse_frequencies: np.ndarray, factor: float, low: float, high: float, original: float
) -> np.ndarray:
    """What Llama 3's scaling divides each of `inverse_frequencies` [head_dim / 2] by."""
    turns = original * inverse_frequencies / (2 * np.pi)  # how often each frequency turns in the original context
    smooth = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - smooth) / factor + smooth)


def _llama3(gguf: GgufFile) -> dict[str, Any] | None:
    factors = np.asarray(gguf.tensors["rope_freqs.weight"].data, dtype=np.float64).reshape(-1)
    base = float(gguf.get("rope.freq_base", 10_000.0))
    inverse_frequencies = base ** -(np.arange(factors.size) / factors.size)
    if np.allclose(factors, 1.0, rtol=_TOLERANCE):
        return None
    factor = float(np.round(factors.max(), 3))
    original = int(gguf.get("rope.scaling.original_context_length") or LLAMA3_PUBLISHED[2])
    candidates = [
        (LLAMA3_PUBLISHED[0], LLAMA3_PUBLISHED[1], original),
        _fit(factors, inverse_frequencies, factor, original),
    ]
    for low, high, context in candidates:
        guess = llama3_factors(inverse_frequencies, factor, low, high, context)
        if np.allclose(factors, guess, rtol=_TOLERANCE):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": low,
                "high_freq_factor": high,
                "original_max_position_embeddings": context,
            }
    raise PrepareError(f"{gguf.path}: rope_freqs.weight does not follow Llama 3's scaling; that is not supported")


def _fit(factors: np.ndarray, frequencies: np.ndarray, factor: float, original: int) -> tuple[float, float, int]:
    """low and high from the factors between the two plateaus, where 1/factor is linear in the frequency.

    Only their ratio to the original context can be seen, so that one is given. Two points make a line; with fewer the
    published numbers are as good as any.
    """
    between = (factors > 1.0 + _TOLERANCE) & (factors < factor * (1.0 - _TOLERANCE))
    if between.sum() < 2:
        return LLAMA3_PUBLISHED
    smooth = (1.0 / factors[between] - 1.0 / factor) / (1.0 - 1.0 / factor)
    slope, offset = np.polyfit(original * frequencies[between] / (2 * np.pi), smooth, 1)
    return round(float(-offset / slope), 4), round(float((1.0 - offset) / slope), 4), original
