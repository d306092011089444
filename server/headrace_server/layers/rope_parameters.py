"""What config.json says about rotary position embedding. No torch here: it is checked before torch loads.

Both spellings are read: `rope_theta` with `rope_scaling`, and `rope_parameters`, which holds everything.
`rope_scaling.py` turns these values into angles.
"""

from dataclasses import dataclass, field

from headrace_server.errors import ConfigError
from headrace_server.fields import Fields


@dataclass(frozen=True)
class RopeParameters:
    """Plain rotary embedding: position p turns pair i of a head by p / theta^(2i / dim)."""

    theta: float
    dim: int  # elements of a head that are rotated: all
    trained_positions: int  # `max_position_embeddings`

    @property
    def max_positions(self) -> int:
        """Longest sequence this embedding is meant for, tokens."""
        return self.trained_positions


@dataclass(frozen=True)
class LinearRope(RopeParameters):
    """All positions are divided by `factor`."""

    factor: float

    @property
    def max_positions(self) -> int:
        return int(self.trained_positions * self.factor)


@dataclass(frozen=True)
class DynamicRope(LinearRope):
    """Beyond the trained positions, theta grows with the position ("NTK-aware")."""


@dataclass(frozen=True)
class YarnRope(RopeParameters):
    """Slow pairs are interpolated by `factor`, fast ones left alone, with a ramp between them."""

    factor: float
    original_positions: int
    attention_factor: float | None
    beta_fast: float
    beta_slow: float
    mscale: float | None
    mscale_all_dim: float | None
    truncate: bool

    @property
    def max_positions(self) -> int:
        return max(self.trained_positions, int(self.original_positions * self.factor))


@dataclass(frozen=True)
class LongRope(RopeParameters):
    """Each pair has its own factor: a short list for the original context, a long one beyond it."""

    factor: float
    original_positions: int
    attention_factor: float | None
    short_factors: tuple[float, ...] = field(repr=False)
    long_factors: tuple[float, ...] = field(repr=False)


@dataclass(frozen=True)
class Llama3Rope(RopeParameters):
    """Long wavelengths are divided by `factor`, short ones left alone, with a smooth change between them."""

    factor: float
    original_positions: int
    low_freq_factor: float
    high_freq_factor: float


STRETCHES = {"linear": LinearRope, "dynamic": DynamicRope}


@dataclass(frozen=True)
class Stretch:
    """Stretches the positions, whatever config.json says of that."""

    scaling: str  # one of STRETCHES
    factor: float

    def of(self, rope: RopeParameters) -> RopeParameters:
        return STRETCHES[self.scaling](rope.theta, rope.dim, rope.trained_positions, self.factor)


def read_rope(config: Fields, head_dim: int, default_theta: float) -> RopeParameters:
    """Raises ConfigError naming the field."""
    scaling = config.nested("rope_parameters") or config.nested("rope_scaling")
    theta = config.number("rope_theta", default_theta)
    plain = (theta, head_dim, config.integer("max_position_embeddings", 2048))
    _refuse_partial(config)
    if scaling is None:
        return RopeParameters(*plain)
    _refuse_partial(scaling)
    plain = (scaling.number("rope_theta", theta), *plain[1:])
    rope_type = scaling.text("rope_type", scaling.text("type", "default"))
    if rope_type not in _READERS:
        raise scaling.error("rope_type", f"is '{rope_type}'; supported: {', '.join(sorted(_READERS))}")
    return _READERS[rope_type](config, scaling, plain)


_Plain = tuple[float, int, int]


def _refuse_partial(fields: Fields) -> None:
    if fields.number("partial_rotary_factor", 1.0) != 1.0:
        raise fields.error("partial_rotary_factor", "is not 1; rotating a part of each head is not supported")


def _plain(config: Fields, scaling: Fields, plain: _Plain) -> RopeParameters:
    return RopeParameters(*plain)


def _linear(config: Fields, scaling: Fields, plain: _Plain) -> RopeParameters:
    return LinearRope(*plain, scaling.number("factor"))


def _dynamic(config: Fields, scaling: Fields, plain: _Plain) -> RopeParameters:
    return DynamicRope(*plain, scaling.number("factor"))


def _yarn(config: Fields, scaling: Fields, plain: _Plain) -> RopeParameters:
    original = _original_positions(config, scaling, plain)
    return YarnRope(
        *plain,
        factor=scaling.number("factor", plain[2] / original),
        original_positions=original,
        attention_factor=_optional(scaling, "attention_factor"),
        beta_fast=scaling.number("beta_fast", 32),
        beta_slow=scaling.number("beta_slow", 1),
        mscale=_optional(scaling, "mscale"),
        mscale_all_dim=_optional(scaling, "mscale_all_dim"),
        truncate=scaling.boolean("truncate", True),
    )


def _longrope(config: Fields, scaling: Fields, plain: _Plain) -> RopeParameters:
    original = _original_positions(config, scaling, plain)
    pairs = plain[1] // 2
    return LongRope(
        *plain,
        factor=scaling.number("factor", plain[2] / original),
        original_positions=original,
        attention_factor=_optional(scaling, "attention_factor"),
        short_factors=scaling.numbers("short_factor", pairs),
        long_factors=scaling.numbers("long_factor", pairs),
    )


def _llama3(config: Fields, scaling: Fields, plain: _Plain) -> RopeParameters:
    low, high = scaling.number("low_freq_factor"), scaling.number("high_freq_factor")
    if high <= low:
        raise ConfigError(f"config.json: high_freq_factor {high} of the rope scaling must exceed low_freq_factor {low}")
    return Llama3Rope(
        *plain,
        factor=scaling.number("factor"),
        original_positions=_original_positions(config, scaling, plain),
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _original_positions(config: Fields, scaling: Fields, plain: _Plain) -> int:
    """Positions of the first training; a value beside the scaling wins over one inside it, as in transformers."""
    inside = scaling.integer("original_max_position_embeddings", plain[2])
    return config.integer("original_max_position_embeddings", inside)


def _optional(scaling: Fields, name: str) -> float | None:
    return scaling.number(name) if scaling.has(name) else None


_READERS = {
    "default": _plain,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "su": _longrope,  # its first name, in older checkpoints
    "llama3": _llama3,
}
