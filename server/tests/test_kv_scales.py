"""Scales of keys and values that a checkpoint brings: used by a cache in float8 e4m3, by no other."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from ranks_world import Ranks, SplitWorld
from safetensors.torch import load_file, save_file
from shard_world import SMALL, World, load, load_on_torch, random_tokens, sampled_logits
from tiny_models import llama

from headrace_server.errors import WeightsError

E4M3 = ("--attention-backend", "triton", "--kv-cache-dtype", "fp8_e4m3fn")
E5M2 = ("--attention-backend", "triton", "--kv-cache-dtype", "fp8_e5m2")
PROMPT = random_tokens(9, seed=3)
LARGER = 512.0
"""What keys and values are made larger by: beyond 448, the largest number of e4m3."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Queries are as much smaller as keys are larger, and so are outputs: only a cache in 8 bits can tell."""
    directory = llama(tmp_path_factory.mktemp("llama"), num_hidden_layers=1).directory
    tensors = load_file(directory / "model.safetensors")
    for name, tensor in tensors.items():
        for projection, factor in (("q", 1 / LARGER), ("k", LARGER), ("v", LARGER), ("o", 1 / LARGER)):
            if name.endswith(f"self_attn.{projection}_proj.weight"):
                tensor *= factor
    save_file(tensors, directory / "model.safetensors")
    return directory


@pytest.fixture(scope="module")
def exact(large: Path) -> np.ndarray:
    return sampled_logits(load_on_torch(large), PROMPT)


def scaled(large: Path, directory: Path, *names: str, scale: float = LARGER) -> Path:
    """The same model with scales under such names."""
    shutil.copytree(large, directory)
    tensors = load_file(large / "model.safetensors")
    tensors |= {f"model.layers.0.self_attn.{name}": torch.tensor(scale) for name in names}
    save_file(tensors, directory / "model.safetensors")
    return directory


def shift(got: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(got - exact).mean() / np.abs(exact).mean())


@pytest.mark.parametrize(
    "names",
    [
        ("k_scale", "v_scale"),
        ("k_proj.k_scale", "v_proj.v_scale"),
        ("k_proj.output_scale", "v_proj.output_scale"),
        ("kv_scale",),
    ],
    ids=lambda names: names[0],
)
def test_they_keep_large_keys_and_values_in_range(
    names: tuple[str, ...], large: Path, exact: np.ndarray, tmp_path: Path
) -> None:
    directory = scaled(large, tmp_path / "scaled", *names)
    assert shift(sampled_logits(load_on_torch(directory, *E4M3), PROMPT), exact) < 0.15


def test_without_them_both_are_cut_off(large: Path, exact: np.ndarray) -> None:
    assert shift(sampled_logits(load_on_torch(large, *E4M3), PROMPT), exact) > 0.3


@pytest.mark.parametrize("name", ["k_scale", "v_scale"])
def test_one_alone_leaves_the_other_out_of_range(name: str, large: Path, exact: np.ndarray, tmp_path: Path) -> None:
    directory = scaled(large, tmp_path / "scaled", name)
    assert shift(sampled_logits(load_on_torch(directory, *E4M3), PROMPT), exact) > 0.2


@pytest.mark.parametrize("flags", [(), E4M3[:2], E5M2], ids=["C++ kernels", "a cache as the model", "e5m2"])
def test_other_caches_do_not_scale(flags: tuple[str, ...], large: Path, tmp_path: Path) -> None:
    directory = scaled(large, tmp_path / "scaled", "k_scale", "v_scale")
    got = sampled_logits(load_on_torch(directory, *flags), PROMPT)
    assert np.array_equal(got, sampled_logits(load_on_torch(large, *flags), PROMPT))


def test_the_decoder_in_cpp_has_no_use_for_them(large: Path, tmp_path: Path) -> None:
    directory = scaled(large, tmp_path / "scaled", "k_scale", "v_scale")
    assert World(load(directory)).generate({0: PROMPT}, 4) == World(load(large)).generate({0: PROMPT}, 4)


def test_every_rank_scales_its_heads_alike(large: Path, tmp_path: Path) -> None:
    """Three ranks of two KV heads: the last one holds none."""
    directory = scaled(large, tmp_path / "scaled", "k_scale", "v_scale")
    alone = World(load_on_torch(directory, *E4M3), **SMALL).generate({0: PROMPT}, 3)
    with Ranks(3, tmp_path) as ranks:
        assert SplitWorld(ranks.load(directory, *E4M3, way="torch"), **SMALL).generate({0: PROMPT}, 3) == alone


@pytest.mark.parametrize("value", [0.0, -1.0, float("inf")])
def test_what_is_no_scale_is_refused(value: float, large: Path, tmp_path: Path) -> None:
    directory = scaled(large, tmp_path / "scaled", "k_scale", "v_scale", scale=value)
    with pytest.raises(WeightsError, match=r"layers\.0\.self_attn\.k_scale' is .*; a scale must be above 0"):
        load_on_torch(directory)


def test_a_plain_model_may_have_them_alone(large: Path, exact: np.ndarray, tmp_path: Path) -> None:
    """compressed-tensors says so by a scheme for the cache and no group of settings for weights."""
    directory = scaled(large, tmp_path / "scaled", "k_scale", "v_scale")
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
    config = {"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": scheme}
    said = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**said, "quantization_config": config}))
    assert shift(sampled_logits(load_on_torch(directory, *E4M3), PROMPT), exact) < 0.15
