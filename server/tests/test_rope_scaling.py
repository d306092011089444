"""Every published rotary scaling, compared with transformers' own functions and with its models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shard_world import World, forward_logits, load, random_tokens
from tiny_models import llama
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from headrace_server.errors import ConfigError
from headrace_server.fields import Fields
from headrace_server.layers.rope_parameters import read_rope
from headrace_server.layers.rope_scaling import cos_sin_table, inverse_frequencies
from headrace_server.models.registry import read_config

PAIRS = 8  # head_dim 16
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn-attention-factor": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32,
                              "attention_factor": 1.3, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn-mscale": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.7,
                    "mscale_all_dim": 0.4},
    "yarn-untruncated": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
                         "truncate": False},
    "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64},
    "longrope-short": {"rope_type": "longrope", "original_max_position_embeddings": 256,
                       "short_factor": [1.0 + i / 4 for i in range(PAIRS)],
                       "long_factor": [2.0 + i for i in range(PAIRS)]},
    "longrope-long": {"rope_type": "longrope", "factor": 8.0, "original_max_position_embeddings": 32,
                      "short_factor": [1.0 + i / 4 for i in range(PAIRS)],
                      "long_factor": [2.0 + i for i in range(PAIRS)]},
}  # fmt: skip


def transformers_config(scaling: dict[str, Any]) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=64,
        num_attention_heads=4,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": 10000.0, **scaling},
    )


def ours(scaling: dict[str, Any]) -> Any:
    return read_rope(Fields({"max_position_embeddings": 256, "rope_parameters": scaling}, "test"), 16, 10000.0)


@pytest.mark.parametrize("name", SCALINGS)
def test_frequencies_equal_transformers_bit_for_bit(name: str) -> None:
    config = transformers_config(SCALINGS[name])
    expected, factor = ROPE_INIT_FUNCTIONS[SCALINGS[name]["rope_type"]](config, torch.device("cpu"), seq_len=256)
    frequencies, our_factor = inverse_frequencies(ours(SCALINGS[name]), 256)
    assert np.array_equal(frequencies, expected.numpy())
    assert our_factor == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("name", SCALINGS)
def test_logits_and_answers_equal_transformers(name: str, tmp_path: Path) -> None:
    model = llama(tmp_path, rope_parameters={"rope_theta": 10000.0, **SCALINGS[name]})
    tokens = random_tokens(150, seed=2)
    world = World(load(tmp_path), max_total_tokens=256)
    torch.testing.assert_close(forward_logits(world, 0, tokens, 40), model.logits(tokens), atol=1e-4, rtol=1e-4)
    prompt = random_tokens(100, seed=3)
    assert World(load(tmp_path), max_total_tokens=256).generate({0: prompt}, 30, chunk=30) == {
        0: model.greedy(prompt, 30)
    }


def test_dynamic_scaling_rotates_each_position_as_transformers_rotates_the_newest() -> None:
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    table = torch.from_numpy(cos_sin_table(ours(scaling), 400))
    for length in (1, 100, 256, 257, 399, 400):
        config = transformers_config(scaling)
        frequencies, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, torch.device("cpu"), seq_len=torch.tensor(length))
        angles = (length - 1) * frequencies
        torch.testing.assert_close(table[length - 1], torch.cat((angles.cos(), angles.sin())), atol=1e-5, rtol=0)


def test_dynamic_scaling_generates_past_the_trained_context_as_transformers(tmp_path: Path) -> None:
    model = llama(
        tmp_path, max_position_embeddings=32, rope_parameters={"rope_theta": 1e4, "rope_type": "dynamic", "factor": 4.0}
    )
    prompt = random_tokens(20, seed=4)
    assert World(load(tmp_path)).generate({0: prompt}, 60) == {0: model.greedy(prompt, 60)}


def test_longrope_takes_short_factors_when_a_short_context_is_served() -> None:
    rope = ours(SCALINGS["longrope-long"])
    short, _ = inverse_frequencies(rope, 32)
    long, _ = inverse_frequencies(rope, 33)
    plain = 10000.0 ** (torch.arange(0, 16, 2) / 16)
    assert np.array_equal(short, (1 / (torch.tensor(rope.short_factors) * plain)).numpy())
    assert not np.array_equal(short, long)


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"max_position_embeddings": 100}, 100),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "linear", "factor": 4}}, 400),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "dynamic", "factor": 2.5}}, 250),
        ({"max_position_embeddings": 100, "rope_scaling": {"type": "yarn", "factor": 4}}, 400),
        (
            {
                "max_position_embeddings": 400,
                "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 100},
            },
            400,
        ),
        (
            {
                "max_position_embeddings": 800,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8,
                    "low_freq_factor": 1,
                    "high_freq_factor": 4,
                    "original_max_position_embeddings": 100,
                },
            },
            800,
        ),
    ],
    ids=["plain", "linear", "dynamic", "yarn", "yarn-stated", "llama3"],
)
def test_the_context_is_what_the_scaling_stretches_it_to(config: dict[str, Any], positions: int) -> None:
    assert read_rope(Fields(config, "test"), 16, 10000.0).max_positions == positions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rope_scaling": {"rope_type": "spiral"}}, "'rope_type' is 'spiral'; supported: default, dynamic"),
        ({"rope_scaling": {"rope_type": "linear"}}, "'factor' is missing"),
        ({"rope_scaling": {"rope_type": "linear", "factor": -1}}, "'factor' is -1; it must be a positive number"),
        ({"partial_rotary_factor": 0.5}, "'partial_rotary_factor' is not 1"),
        ({"rope_scaling": {"rope_type": "longrope", "short_factor": [1], "long_factor": [1]}}, "at least 8 items"),
    ],
    ids=["unknown", "missing", "negative", "partial", "short-list"],
)
def test_a_scaling_that_cannot_work_is_refused_by_name(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 8}
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 9, "num_hidden_layers": 1, **change}))
    with pytest.raises(ConfigError, match=message):
        read_config(tmp_path)
