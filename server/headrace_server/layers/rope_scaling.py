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

import torch
from torch import Tensor

from headrace_server.layers.rope_parameters import (
    DynamicRope,
    LinearRope,
    Llama3Rope,
    LongRope,
    RopeParameters,
    YarnRope,
)


def cos_sin_table(rope: RopeParameters, served_positions: int, device: torch.device) -> Tensor:
    """[served_positions, dim] float32: of each position dim / 2 cosines, then as many sines, scaled."""
    positions = torch.arange(served_positions, dtype=torch.float32)
    inverse, scale = inverse_frequencies(rope, served_positions)
    angles = positions[:, None] * inverse
    return torch.cat((angles.cos(), angles.sin()), dim=-1).mul_(scale).to(device)


def inverse_frequencies(rope: RopeParameters, served_positions: int) -> tuple[Tensor, float]:
    """(radians per position of each pair, factor of cos and sin).

    The first is [dim / 2], or for dynamic scaling [served_positions, dim / 2].
    """
    match rope:
        case DynamicRope():
            return _dynamic(rope, served_positions), 1.0
        case LinearRope():
            return _plain(rope) / rope.factor, 1.0
        case YarnRope():
            return _yarn(rope), _yarn_attention_factor(rope)
        case LongRope():
            return _longrope(rope, served_positions), _longrope_attention_factor(rope)
        case Llama3Rope():
            return _llama3(rope), 1.0
        case _:
            return _plain(rope), 1.0


def _exponents(rope: RopeParameters) -> Tensor:
    return torch.arange(0, rope.dim, 2, dtype=torch.float32) / rope.dim


def _plain(rope: RopeParameters) -> Tensor:
    return 1.0 / (rope.theta ** _exponents(rope))


def _dynamic(rope: DynamicRope, served_positions: int) -> Tensor:
    lengths = torch.arange(1, served_positions + 1, dtype=torch.float32).clamp_(min=rope.trained_positions)
    growth = rope.factor * lengths / rope.trained_positions - (rope.factor - 1)
    theta = rope.theta * growth ** (rope.dim / (rope.dim - 2))
    return 1.0 / (theta[:, None] ** _exponents(rope))


def _yarn(rope: YarnRope) -> Tensor:
    wavelengths = rope.theta ** _exponents(rope)
    extrapolated, interpolated = 1.0 / wavelengths, 1.0 / (rope.factor * wavelengths)
    low, high = (_pair_that_turns(rope, turns) for turns in (rope.beta_fast, rope.beta_slow))
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    if low == high:
        high += 0.001  # a ramp needs a width
    ramp = ((torch.arange(rope.dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
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


def _longrope(rope: LongRope, served_positions: int) -> Tensor:
    factors = rope.long_factors if served_positions > rope.original_positions else rope.short_factors
    return 1.0 / (torch.tensor(factors, dtype=torch.float32) * rope.theta ** _exponents(rope))


def _longrope_attention_factor(rope: LongRope) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.factor <= 1.0:
        return 1.0
    return math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_positions))


def _llama3(rope: Llama3Rope) -> Tensor:
    inverse = _plain(rope)
    wavelengths = 2 * math.pi / inverse
    longest_kept = rope.original_positions / rope.high_freq_factor
    shortest_divided = rope.original_positions / rope.low_freq_factor
    divided = torch.where(wavelengths > shortest_divided, inverse / rope.factor, inverse)
    smooth = (rope.original_positions / wavelengths - rope.low_freq_factor) / (
        rope.high_freq_factor - rope.low_freq_factor
    )
    blended = (1 - smooth) * divided / rope.factor + smooth * divided
    between = (wavelengths >= longest_kept) & (wavelengths <= shortest_divided)
    return torch.where(between, blended, divided)
