"""config.json is read as transformers reads it, and what cannot work is refused by the field's name."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from headrace_server.architectures import MODEL_TYPES
from headrace_server.errors import ConfigError
from headrace_server.layers.rope_parameters import DynamicRope, LinearRope, Stretch
from headrace_server.models.config import ModelConfig
from headrace_server.models.registry import ARCHITECTURES, read_config

SMALL = {"vocab_size": 9, "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 4, "num_attention_heads": 4}


def read(directory: Path, **fields: Any) -> ModelConfig:
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", **SMALL, **fields}))
    return read_config(directory)


@pytest.mark.parametrize(
    ("model_type", "name"),
    [
        ("llama", "Llama"),
        ("mistral", "Mistral"),
        ("qwen2", "Qwen2"),
        ("qwen3", "Qwen3"),
        ("smollm3", "SmolLM3"),
    ],
)
def test_what_config_json_leaves_out_is_what_transformers_assumes(model_type: str, name: str, tmp_path: Path) -> None:
    theirs = getattr(transformers, f"{name}Config")(**SMALL)
    kv_heads = theirs.num_key_value_heads
    ours = read(tmp_path, model_type=model_type, num_key_value_heads=kv_heads if kv_heads <= 4 else 4)
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 16)
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.rope.theta == theirs.rope_parameters["rope_theta"]
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert ours.qkv_bias == (model_type == "qwen2")
    windows = {layer.sliding_window for layer in ours.layers}
    assert windows == ({theirs.sliding_window} if model_type == "mistral" else {None})
    rotary = getattr(theirs, "no_rope_layers", [1] * 4)
    assert [layer.rotary for layer in ours.layers] == [bool(flag) for flag in rotary]


def test_every_architecture_that_prepare_accepts_can_be_computed() -> None:
    assert set(ARCHITECTURES) == set(MODEL_TYPES)


def test_an_explicit_null_turns_mistrals_window_off(tmp_path: Path) -> None:
    assert read(tmp_path, model_type="mistral", sliding_window=None).layers[0].sliding_window is None


def test_layer_types_say_which_layers_slide(tmp_path: Path) -> None:
    types = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]
    config = read(tmp_path, model_type="qwen2", use_sliding_window=True, sliding_window=5, layer_types=types)
    assert [layer.sliding_window for layer in config.layers] == [None, 5, None, 5]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "mamba"}, "architecture 'mamba' .* is not supported; supported: llama, mistral, qwen2"),
        ({"model_type": None}, "'model_type' is missing"),
        ({"hidden_size": None}, "'hidden_size' is missing"),
        ({"hidden_size": "big"}, "'hidden_size' is 'big'; it must be a positive integer"),
        ({"num_hidden_layers": 0}, "'num_hidden_layers' is 0; it must be a positive integer"),
        ({"num_key_value_heads": 3}, "'num_key_value_heads' is 3, which does not divide 4 heads"),
        ({"head_dim": 15}, "'head_dim' is 15; rotary embedding needs an even one"),
        ({"hidden_act": "gelu"}, "'hidden_act' is 'gelu'; only 'silu' is supported"),
        ({"rms_norm_eps": -1}, "'rms_norm_eps' is -1; it must be a positive number"),
        ({"tie_word_embeddings": 1}, "'tie_word_embeddings' is 1; it must be true or false"),
        ({"rope_scaling": 3}, "'rope_scaling' is 3; it must be an object"),
        (
            {"model_type": "qwen2", "layer_types": ["chunked"] * 4},
            "'layer_types' holds .'chunked",
        ),
        ({"model_type": "smollm3", "no_rope_layers": [1]}, "'no_rope_layers' must be a list of at least 4 items"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_field_that_cannot_work_is_named(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, **fields)


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json does not exist"):
        read_config(tmp_path)
    for content in ("{", "[]"):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ConfigError, match=r"config\.json (cannot be read|is not a JSON object)"):
            read_config(tmp_path)


@pytest.mark.parametrize(("scaling", "kind"), [("linear", LinearRope), ("dynamic", DynamicRope)])
def test_a_stretch_that_is_asked_for_replaces_that_of_config_json(scaling: str, kind: type, tmp_path: Path) -> None:
    own = {"rope_type": "yarn", "factor": 8.0}
    plain = read(tmp_path, max_position_embeddings=1000, rope_theta=5.0, rope_scaling=own)
    stretched = read_config(tmp_path, Stretch(scaling, 2.5))
    assert type(stretched.rope) is kind
    assert (stretched.rope.theta, stretched.rope.dim, stretched.max_positions) == (5.0, plain.rope.dim, 2500)
