"""Checkpoints in 8 bits: the same tokens as their numbers in plain form give, on every way that computes."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from eight_bit_checkpoints import FP8, KINDS, TOKEN, compressed, write
from int4_checkpoints import Pair
from shard_world import COMPUTES, World, load, load_on_torch, random_tokens, sampled_logits
from tiny_models import llama, save

from headrace_kernels.backends import preferring
from headrace_kernels.gpu import chip
from headrace_server.errors import ConfigError, WeightsError
from headrace_server.models.registry import read_config
from headrace_server.quantization import method as methods
from headrace_server.quantization.eight_bit_checkpoint import TYPES, EightBitCheckpoint
from headrace_server.quantization.eight_bits import ScaledLinear
from headrace_server.quantization.method import quantization_method
from headrace_server.quantization.none import UnquantizedLinear
from headrace_server.quantization.stored import StoredEightBits
from headrace_server.runner import Runner
from headrace_server.weights.invented import InventedCheckpoint
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice

PROMPTS = {row: random_tokens(9 + row, seed=row) for row in range(2)}
PROMPT = PROMPTS[1]


@pytest.fixture(scope="module")
def plain_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of 64 and 128, of which blocks of 48 leave a part."""
    sizes = {"intermediate_size": 128, "num_hidden_layers": 2, "initializer_range": 0.1, "tie_word_embeddings": False}
    return llama(tmp_path_factory.mktemp("plain"), **sizes).directory


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def pair(request: pytest.FixtureRequest, plain_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return write(plain_llama, tmp_path_factory.mktemp("eight"), request.param)


def method_of(directory: Path, rows: bool) -> EightBitCheckpoint:
    """As a GPU has it; `rows`: they are rounded where the checkpoint says so."""
    stored = read_config(directory).quantization
    assert isinstance(stored, StoredEightBits)
    return EightBitCheckpoint(stored, TYPES[stored.dtype] if rows and stored.rounds_rows else None)


def load_weights_alone(directory: Path) -> Runner:
    return load_on_torch(directory, method=method_of(directory, rows=False))


def load_as_on_gpu(directory: Path) -> Runner:
    return load_on_torch(directory, method=method_of(directory, rows=True))


@pytest.mark.parametrize("compute", [*COMPUTES.values(), load_weights_alone], ids=[*COMPUTES, "torch, 8 bits"])
def test_tokens_are_those_of_the_same_numbers_in_plain_form(compute: Any, pair: Pair) -> None:
    expected = World(load(pair.plain)).generate(PROMPTS, 8)
    assert World(compute(pair.quantized)).generate(PROMPTS, 8) == expected


def shift(got: np.ndarray, exact: np.ndarray) -> float:
    return float(np.abs(got - exact).mean() / np.abs(exact).mean())


def test_rounding_rows_moves_logits_little(pair: Pair) -> None:
    """int8 rounds to 1 part in 254 of a row's largest element, float8 to 1 part in 16 of each."""
    rounds = method_of(pair.quantized, rows=True).rows is not None
    exact = sampled_logits(load_on_torch(pair.plain), PROMPT)
    moved = shift(sampled_logits(load_as_on_gpu(pair.quantized), PROMPT), exact)
    assert (1e-4 if rounds else 0) < moved < (0.15 if rounds else 1e-5)


@pytest.mark.parametrize("name", ["fp8", "fp8 in blocks", "float, weights alone", "int8"])
def test_the_kernels_give_what_their_definitions_do(name: str, plain_llama: Path, tmp_path: Path) -> None:
    directory = write(plain_llama, tmp_path, KINDS[name]).quantized
    expected = sampled_logits(load_as_on_gpu(directory), PROMPT)
    with preferring("triton"):
        interpreted = sampled_logits(load_as_on_gpu(directory), PROMPT)
    # A row's element that falls between two of float8's may go to either.
    assert shift(interpreted, expected) < 0.02


@pytest.mark.parametrize("name", ["fp8 in blocks", "int8"])
def test_modules_that_are_stored_plain_stay_plain(name: str, plain_llama: Path, tmp_path: Path) -> None:
    """The whole of a layer, and one of three that are computed as one."""
    plain = ("layers.0.mlp", "layers.1.self_attn.k_proj")
    pair = write(plain_llama, tmp_path, KINDS[name], lambda module: any(part in module for part in plain))
    expected = World(load(pair.plain)).generate(PROMPTS, 8)
    for compute in (load, load_on_torch, load_weights_alone):
        assert World(compute(pair.quantized)).generate(PROMPTS, 8) == expected


def test_biases_of_the_model_stay(tmp_path: Path) -> None:
    pair = write(save("Qwen2", tmp_path / "model", intermediate_size=128).directory, tmp_path, KINDS["fp8"])
    expected = World(load(pair.plain)).generate(PROMPTS, 8)
    for compute in (load, load_on_torch, load_weights_alone):
        assert World(compute(pair.quantized)).generate(PROMPTS, 8) == expected


SIZE = {"gate": (128, 64), "down": (64, 128)}


@pytest.mark.parametrize("expand", [False, True])
@pytest.mark.parametrize(
    ("module", "out_features", "in_features"),
    [
        ("gate", (0, 128), (0, 64)),
        ("gate", (40, 100), (0, 64)),
        ("down", (0, 64), (32, 96)),
        ("down", (5, 50), (64, 128)),
        ("down", (0, 64), (40, 60)),
    ],
)
def test_a_rank_has_the_same_numbers_as_the_whole(
    pair: Pair, expand: bool, module: str, out_features: tuple[int, int], in_features: tuple[int, int]
) -> None:
    rows, columns = Slice(SIZE[module][0], *out_features), Slice(SIZE[module][1], *in_features)
    name = f"model.layers.0.mlp.{module}_proj"
    stored = method_of(pair.quantized, rows=False).stored
    with Checkpoint(pair.plain, torch.float32, torch.device("cpu")) as checkpoint:
        whole = checkpoint.take(f"{name}.weight", rows.size, columns.size)
    with Checkpoint(pair.quantized, torch.float32, torch.device("cpu")) as checkpoint:
        part = EightBitCheckpoint(stored, None, expand=expand).linear(checkpoint, [name], [rows], columns, False)
    assert isinstance(part, UnquantizedLinear if expand else ScaledLinear)
    expected = whole[rows.begin : rows.end, columns.begin : columns.end].T
    torch.testing.assert_close(part(torch.eye(len(columns))), expected, atol=1e-6, rtol=1e-6)


def quantized_config(plain_llama: Path, tmp_path: Path, config: dict[str, Any]) -> Path:
    said = json.loads((plain_llama / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**said, "quantization_config": config}))
    return tmp_path


CHANNELS = compressed("float", "channel", TOKEN)
INT4 = compressed("int", "group", None, num_bits=4, group_size=128)
BOTH_GROUPS = dict.fromkeys(("group_0", "group_1"), CHANNELS["config_groups"]["group_0"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**FP8, "fmt": "e5m2"}, "'fmt' is e5m2; supported: e4m3"),
        ({**FP8, "activation_scheme": "none"}, "'activation_scheme' is none; supported: dynamic, static"),
        ({**FP8, "weight_block_size": [128, 100]}, r"'weight_block_size' is \[128, 100\]; supported: any number of"),
        ({**CHANNELS, "format": "marlin-24"}, "'format' is marlin-24; supported: float-quantized, int-quantized,"),
        ({**CHANNELS, "format": "mxfp4-pack-quantized"}, "'format' is mxfp4-pack-quantized; supported: "),
        ({**CHANNELS, "format": "int-quantized"}, "weights: 'type' is float; supported: int"),
        ({**CHANNELS, "sparsity_config": {"format": "sparse-24-bitmask"}}, "'format' is sparse-24-bitmask; supported:"),
        ({**CHANNELS, "transform_config": {"config_groups": {}}}, "'transform_config' rotates activations"),
        ({**CHANNELS, "config_groups": BOTH_GROUPS}, "'config_groups' has 2 groups of settings; supported: one"),
        (
            {**CHANNELS, "kv_cache_scheme": {"num_bits": 8, "type": "int"}},
            "kv_cache_scheme: 'type' is int; supported: float",
        ),
        (
            {**CHANNELS, "kv_cache_scheme": {"num_bits": 8, "strategy": "attn_head"}},
            "kv_cache_scheme: 'strategy' is attn_head; supported: tensor",
        ),
        (compressed("int", "channel", TOKEN, num_bits=4), "weights: 'num_bits' is 4; supported: 8"),
        (compressed("int", "channel", TOKEN, symmetric=False), "weights: 'symmetric' is false; supported: true"),
        (compressed("int", "block", TOKEN), "weights: 'strategy' is block; supported: tensor, channel"),
        (compressed("float", "group", TOKEN), "weights: 'strategy' is group; supported: tensor, channel, block"),
        (
            compressed("int", "channel", {**TOKEN, "symmetric": False}),
            "input_activations: 'symmetric' is false; supported: true",
        ),
        (
            {**compressed("int", "group", TOKEN, num_bits=4, group_size=128), "format": "pack-quantized"},
            "'input_activations' is there; supported with 4-bit weights: null",
        ),
        (
            {**compressed("int", "channel", None), "format": "pack-quantized"},
            "weights: 'num_bits' is 8; supported: 4",
        ),
    ],
)
def test_what_is_not_supported_is_named(
    config: dict[str, Any], message: str, plain_llama: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(quantized_config(plain_llama, tmp_path, config))


def test_one_number_of_a_scale_too_few_is_named(plain_llama: Path, tmp_path: Path) -> None:
    by_channel = write(plain_llama, tmp_path / "channels", KINDS["float, channels"]).quantized
    said = json.loads((by_channel / "config.json").read_text())
    (by_channel / "config.json").write_text(json.dumps({**said, "quantization_config": FP8}))
    for compute in (load, load_weights_alone):
        with pytest.raises(WeightsError, match=r"q_proj\.weight_scale' of .* has shape \[64, 1\], but .* \[1, 1\]"):
            compute(by_channel)


def test_its_own_method_may_be_asked_for(plain_llama: Path, tmp_path: Path) -> None:
    directory = write(plain_llama, tmp_path, KINDS["fp8"]).quantized
    load(directory, "--quantize", "fp8")
    load(write(plain_llama, tmp_path / "channels", KINDS["float, channels"]).quantized, "--quantize", "fp8")
    load(write(plain_llama, tmp_path / "int8", KINDS["int8"]).quantized, "--quantize", "compressed-tensors")
    with pytest.raises(ConfigError, match="--quantize int8: the checkpoint is quantized already, by fp8; leave it out"):
        load(directory, "--quantize", "int8")


def test_the_log_says_what_becomes_of_them(
    plain_llama: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write(plain_llama, tmp_path, KINDS["fp8, static rows"]).quantized
    with caplog.at_level(logging.INFO):
        load(directory)
        assert "weights of linear layers: 14 tensors of fp8, expanded" in caplog.text
        load_on_torch(directory)
        assert "weights of linear layers: those of fp8 are expanded, for want of kernels for them" in caplog.text
        monkeypatch.setattr(chip, "capability", lambda: 90)
        quantization_method(read_config(directory).quantization, None, torch.device("cuda"))
    assert "scales of rows that the checkpoint has are not used: each row gets one of its own" in caplog.text


@pytest.mark.parametrize(
    ("name", "capability", "rows"),
    [
        ("fp8", 80, None),
        ("fp8", 89, torch.float8_e4m3fn),
        ("float, weights alone", 90, None),
        ("int8", 80, torch.int8),
    ],
)
def test_rows_are_rounded_where_chip_and_checkpoint_want_it(
    name: str,
    capability: int,
    rows: torch.dtype | None,
    plain_llama: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chip, "capability", lambda: capability)
    stored = read_config(quantized_config(plain_llama, tmp_path, KINDS[name].config)).quantization
    assert isinstance(stored, StoredEightBits)
    assert quantization_method(stored, None, torch.device("cuda")) == EightBitCheckpoint(stored, rows)


def test_a_gpu_without_kernels_expands_them(plain_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "find_spec", lambda name: None)
    stored = read_config(quantized_config(plain_llama, tmp_path, FP8)).quantization
    assert isinstance(stored, StoredEightBits)
    assert quantization_method(stored, None, torch.device("cuda")) == EightBitCheckpoint(stored, None, expand=True)


@pytest.mark.parametrize("name", ["fp8", "fp8 in blocks", "int8"])
def test_weights_without_numbers_have_the_shapes_of_some(name: str, plain_llama: Path, tmp_path: Path) -> None:
    stored = read_config(quantized_config(plain_llama, tmp_path, KINDS[name].config)).quantization
    assert isinstance(stored, StoredEightBits)
    for device in ("meta", "cpu"):
        nothing = InventedCheckpoint(torch.bfloat16, torch.device(device))
        part, inputs = Slice(96, 0, 48), Slice(512, 0, 256)
        layer = EightBitCheckpoint(stored, None).linear(nothing, ["a", "b"], [part, part], inputs, True)
        assert isinstance(layer, ScaledLinear) and layer.bias is not None
        assert layer.weight.values.shape == (96, 256) and layer.weight.values.dtype is TYPES[stored.dtype]
        assert layer.weight.scales.shape == ((8, 96) if name == "fp8 in blocks" else (96,))
