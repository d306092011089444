"""How each architecture is computed, and what its config.json leaves unsaid. A new one of the Llama family is an entry.

Where config.json is silent, transformers' configuration class of that architecture is the authority, so the
defaults here are its defaults.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace_server.errors import ConfigError
from headrace_server.fields import Fields
from headrace_server.layers.rope_parameters import Stretch, read_rope
from headrace_server.models.config import LayerConfig, ModelConfig
from headrace_server.quantization.read_stored import read_stored
from headrace_server.quantization.stored import Stored

if TYPE_CHECKING:
    from headrace_server.models.llama import Llama


@dataclass(frozen=True)
class Architecture:
    """How one `model_type` differs from plain Llama."""

    qkv_bias: Callable[[Fields], bool]
    output_bias: Callable[[Fields], bool]
    layers: Callable[[Fields, int], tuple[LayerConfig, ...]]
    qk_norm: bool = False
    mlp_bias: bool = False  # whether config.json may ask for it
    tie_word_embeddings: bool = False
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6
    head_dim: int | None = None  # None: hidden_size / heads


def read_config(model_dir: Path, stretch: Stretch | None = None) -> ModelConfig:
    """Read and check config.json; `stretch` overrules its positions. Raises ConfigError naming the field."""
    fields = Fields.read(model_dir / "config.json")
    model_type = fields.text("model_type")
    architecture = ARCHITECTURES.get(model_type)
    if architecture is None:
        raise ConfigError(
            f"architecture '{model_type}' of {model_dir / 'config.json'} is not supported; "
            f"supported: {', '.join(sorted(ARCHITECTURES))}"
        )
    config = _read(fields, model_type, architecture, read_stored(model_dir, fields))
    return config if stretch is None else replace(config, rope=stretch.of(config.rope))


def model_class(config: ModelConfig) -> "type[Llama]":
    """The class that computes a model of this configuration. Imports torch."""
    from headrace_server.models.llama import Llama

    return Llama


def _read(fields: Fields, model_type: str, architecture: Architecture, quantization: Stored | None) -> ModelConfig:
    if (activation := fields.text("hidden_act", "silu")) != "silu":
        raise fields.error("hidden_act", f"is '{activation}'; only 'silu' is supported")
    hidden_size = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    num_kv_heads = fields.integer("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise fields.error("num_key_value_heads", f"is {num_kv_heads}, which does not divide {num_heads} heads")
    head_dim = fields.integer("head_dim", architecture.head_dim or max(hidden_size // num_heads, 1))
    if head_dim % 2:
        raise fields.error("head_dim", f"is {head_dim}; rotary embedding needs an even one")
    return ModelConfig(
        model_type=model_type,
        vocab_size=fields.integer("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=fields.integer("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=fields.number("rms_norm_eps", architecture.rms_norm_eps),
        rope=read_rope(fields, head_dim, architecture.rope_theta),
        qkv_bias=architecture.qkv_bias(fields),
        output_bias=architecture.output_bias(fields),
        mlp_bias=architecture.mlp_bias and fields.boolean("mlp_bias", False),
        qk_norm=architecture.qk_norm,
        tie_word_embeddings=fields.boolean("tie_word_embeddings", architecture.tie_word_embeddings),
        quantization=quantization,
        layers=architecture.layers(fields, fields.integer("num_hidden_layers")),
    )


def _always(fields: Fields) -> bool:
    return True


def _never(fields: Fields) -> bool:
    return False


def _attention_bias(fields: Fields) -> bool:
    return fields.boolean("attention_bias", False)


def _plain_layers(fields: Fields, num_layers: int) -> tuple[LayerConfig, ...]:
    return (LayerConfig(rotary=True, sliding_window=None),) * num_layers


def _mistral_layers(fields: Fields, num_layers: int) -> tuple[LayerConfig, ...]:
    """One window for all layers. An explicit null turns it off; an absent field means 4096."""
    window = None if fields.is_null("sliding_window") else fields.integer("sliding_window", 4096)
    return (LayerConfig(rotary=True, sliding_window=window),) * num_layers


def _qwen_layers(fields: Fields, num_layers: int) -> tuple[LayerConfig, ...]:
    """The window is off unless `use_sliding_window`; then it holds for the layers from `max_window_layers` on."""
    window = fields.integer("sliding_window", 4096) if fields.boolean("use_sliding_window", False) else None
    first = fields.count("max_window_layers", 28)
    windowed = _windowed_layers(fields, tuple(index >= first for index in range(num_layers)))
    return tuple(LayerConfig(rotary=True, sliding_window=window if slides else None) for slides in windowed)


def _smollm3_layers(fields: Fields, num_layers: int) -> tuple[LayerConfig, ...]:
    """Every fourth layer has no rotary embedding; the window, if any, is in just those layers."""
    if fields.has("no_rope_layers"):
        rotary = tuple(flag != 0 for flag in fields.numbers("no_rope_layers", num_layers))
    else:
        interval = fields.integer("no_rope_layer_interval", 4)
        rotary = tuple((index + 1) % interval != 0 for index in range(num_layers))
    slides = fields.boolean("use_sliding_window", False) and fields.has("sliding_window")
    window = fields.integer("sliding_window") if slides else None
    windowed = _windowed_layers(fields, tuple(not rotates for rotates in rotary))
    return tuple(LayerConfig(rotates, window if slid else None) for rotates, slid in zip(rotary, windowed, strict=True))


def _windowed_layers(fields: Fields, otherwise: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which layers slide: `layer_types` if config.json states it."""
    if not fields.has("layer_types"):
        return otherwise
    types = fields.texts("layer_types", len(otherwise))
    if unknown := set(types) - {"full_attention", "sliding_attention"}:
        raise fields.error("layer_types", f"holds {sorted(unknown)}; only full and sliding attention are supported")
    return tuple(kind == "sliding_attention" for kind in types)


ARCHITECTURES = {
    "llama": Architecture(_attention_bias, _attention_bias, _plain_layers, mlp_bias=True),
    "mistral": Architecture(_never, _never, _mistral_layers),
    "qwen2": Architecture(_always, _never, _qwen_layers),
    "qwen3": Architecture(_attention_bias, _attention_bias, _qwen_layers, qk_norm=True, head_dim=128),
    "smollm3": Architecture(
        _attention_bias,
        _attention_bias,
        _smollm3_layers,
        mlp_bias=True,
        tie_word_embeddings=True,
        rope_theta=2_000_000.0,
    ),
}
