"""From rotary parameters to angles.

A token's rotation may depend on its position only: blocks of KV are shared and recomputed, so a key must not depend
on how long its sequence is or will be. That decides two cases where transformers looks at the whole sequence:

* dynamic: transformers recomputes theta from the current length. Here position p is rotated as transformers rotates
  the newest token of a sequence of p + 1 tokens, so generating token by token agrees with it exactly.
* longrope: transformers takes the long factors once the current length passes the original context. Keys of both
  kinds in one sequence would break relative positions, so here the choice is made once, for the context that is served.

Arithmetic is float32 in transformers' order of operations: at position 8000 a rounding more or less is visible.
"""

import math

import numpy as np
from numpy.typing import NDArray

from headrace_server.layers.rope_parameters import (
    DynamicRope,
    LinearRope,
    Llama3Rope,
    LongRope,
    RopeParameters,
    YarnRope,
)

Floats = NDArray[np.float32]


def cos_sin_table(rope: RopeParameters, served_positions: int) -> Floats:
    """[served_positions, dim]: of each position dim / 2 cosines, then as many sines, scaled."""
    inverse, scale = inverse_frequencies(rope, served_positions)
    angles = np.arange(served_positions, dtype=np.float32)[:, None] * inverse
    table = np.empty((served_positions, rope.dim), np.float32)
    half = rope.dim // 2
    # In float64, rounded once: float32 cosines of large angles differ from library to library.
    np.multiply(np.cos(angles, dtype=np.float64), scale, out=table[:, :half], casting="same_kind")
    np.multiply(np.sin(angles, dtype=np.float64), scale, out=table[:, half:], casting="same_kind")
    return table


def inverse_frequencies(rope: RopeParameters, served_positions: int) -> tuple[Floats, float]:
    """(radians per position of each pair, factor of cos and sin).

    The first is [dim / 2], or for dynamic scaling [served_positions, dim / 2].
    """
    match rope:
        case DynamicRope():
            return _dynamic(rope, served_positions), 1.0
        case LinearRope():
            return _plain(rope) / np.float32(rope.factor), 1.0
        case YarnRope():
            return _yarn(rope), _yarn_attention_factor(rope)
        case LongRope():
            return _longrope(rope, served_positions), _longrope_attention_factor(rope)
        case Llama3Rope():
            return _llama3(rope), 1.0
        case _:
            return _plain(rope), 1.0


def _exponents(rope: RopeParameters) -> Floats:
    return np.arange(0, rope.dim, 2, dtype=np.float32) / np.float32(rope.dim)


def _power(base: float | Floats, exponents: Floats | float) -> Floats:
    """base ** exponents, rounded to float32 once."""
    return np.asarray(np.power(np.asarray(base, np.float64), np.asarray(exponents, np.float64)), np.float32)


def _plain(rope: RopeParameters) -> Floats:
    return np.float32(1) / _power(rope.theta, _exponents(rope))


def _dynamic(rope: DynamicRope, served_positions: int) -> Floats:
    lengths = np.maximum(np.arange(1, served_positions + 1, dtype=np.float32), np.float32(rope.trained_positions))
    growth = np.float32(rope.factor) * lengths / np.float32(rope.trained_positions) - np.float32(rope.factor - 1)
    theta = np.float32(rope.theta) * _power(growth, rope.dim / (rope.dim - 2))
    return np.float32(1) / _power(theta[:, None], _exponents(rope))


def _yarn(rope: YarnRope) -> Floats:
    wavelengths = _power(rope.theta, _exponents(rope))
    extrapolated, interpolated = 1 / wavelengths, 1 / (np.float32(rope.factor) * wavelengths)
    low, high = (_pair_that_turns(rope, turns) for turns in (rope.beta_fast, rope.beta_slow))
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    if low == high:
        high += 0.001  # a ramp needs a width
    ramp = ((np.arange(rope.dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(high - low)).clip(0, 1)
    keep = 1 - ramp
    return interpolated * (1 - keep) + extrapolated * keep


def _pair_that_turns(rope: YarnRope, turns: float) -> float:
    """Which pair makes so many full turns over the original context."""
    return rope.dim * math.log(rope.original_positions / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))


def _yarn_attention_factor(rope: YarnRope) -> float:
    def mscale(weight: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * weight * math.log(rope.factor) + 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return mscale(rope.mscale) / mscale(rope.mscale_all_dim)
    return mscale(1.0)


def _longrope(rope: LongRope, served_positions: int) -> Floats:
    factors = rope.long_factors if served_positions > rope.original_positions else rope.short_factors
    return np.float32(1) / (np.asarray(factors, np.float32) * _power(rope.theta, _exponents(rope)))


def _longrope_attention_factor(rope: LongRope) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1.0:
        return 1.0
    return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_positions))


def _llama3(rope: Llama3Rope) -> Floats:
    inverse = _plain(rope)
    wavelengths = np.float32(2 * math.pi) / inverse
    longest_kept = rope.original_positions / rope.high_freq_factor
    shortest_divided = rope.original_positions / rope.low_freq_factor
    factor = np.float32(rope.factor)
    divided = np.where(wavelengths > shortest_divided, inverse / factor, inverse)
    smooth = (np.float32(rope.original_positions) / wavelengths - np.float32(rope.low_freq_factor)) / np.float32(
        rope.high_freq_factor - rope.low_freq_factor
    )
    blended = (1 - smooth) * divided / factor + smooth * divided
    between = (wavelengths >= longest_kept) & (wavelengths <= shortest_divided)
    return np.where(between, blended, divided)
