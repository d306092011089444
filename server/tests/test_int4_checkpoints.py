"""Checkpoints in 4 bits: the same tokens as their numbers in plain form give, on every way that computes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from int4_checkpoints import Pair, compressed, write
from safetensors.torch import load_file, save_file
from shard_world import COMPUTES, World, load, load_on_torch, random_tokens
from tiny_models import llama, save

from headrace_server.errors import ConfigError, WeightsError
from headrace_server.models.registry import read_config
from headrace_server.quantization.four_bits import FourBits, Int4Linear
from headrace_server.quantization.groups import Groups, groups_of
from headrace_server.quantization.none import UnquantizedLinear
from headrace_server.quantization.stored import StoredInt4
from headrace_server.runner import Runner
from headrace_server.weights.invented import InventedCheckpoint
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}
KINDS: dict[str, tuple[dict[str, Any], bool]] = {
    "gptq": (GPTQ, False),
    "gptq of one group": ({**GPTQ, "group_size": -1}, False),
    "gptq in act-order": ({**GPTQ, "desc_act": True}, True),
    "gptq, second version": ({**GPTQ, "checkpoint_format": "gptq_v2"}, False),
    "awq": (AWQ, False),
    "compressed": (compressed(32, symmetric=True), False),
    "compressed, of one group": (compressed(None, symmetric=True), False),
    "compressed, with zeros": (compressed(32, symmetric=False), False),
    "compressed, in act-order": (compressed(32, symmetric=True, actorder="group"), True),
}
PROMPTS = {row: random_tokens(9 + row, seed=row) for row in range(2)}


@pytest.fixture(scope="module")
def plain_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return llama(tmp_path_factory.mktemp("plain"), intermediate_size=128, num_hidden_layers=2).directory


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def pair(request: pytest.FixtureRequest, plain_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    config, act_order = request.param
    return write(plain_llama, tmp_path_factory.mktemp("int4"), config, act_order=act_order)


def load_packed(directory: Path) -> Runner:
    """Torch's way as on a GPU, where 4 bits stay 4 bits."""
    stored = read_config(directory).quantization
    assert isinstance(stored, StoredInt4)
    return load_on_torch(directory, method=FourBits(stored, unpack=False))


@pytest.mark.parametrize("compute", [*COMPUTES.values(), load_packed], ids=[*COMPUTES, "torch, packed"])
def test_tokens_are_those_of_the_same_numbers_in_plain_form(compute: Any, pair: Pair) -> None:
    answers = World(compute(pair.quantized)).generate(PROMPTS, 12)
    assert answers == World(load(pair.plain)).generate(PROMPTS, 12)


def test_biases_of_the_model_stay(tmp_path: Path) -> None:
    """Qwen2's projections have some; so have, in checkpoints of some tools, layers that the model gives none."""
    pair = write(save("Qwen2", tmp_path / "model", intermediate_size=128).directory, tmp_path, GPTQ)
    expected = World(load(pair.plain)).generate(PROMPTS, 8)
    for compute in (load, load_on_torch, load_packed):
        assert World(compute(pair.quantized)).generate(PROMPTS, 8) == expected


@pytest.mark.parametrize("name", ["quantize_config.json", "quant_config.json"])
def test_a_file_beside_config_json_says_it_too(name: str, plain_llama: Path, tmp_path: Path) -> None:
    old_names = {"q_group_size": 32, "w_bit": 4, "version": "GEMM"}
    config, beside = (GPTQ, GPTQ) if name == "quantize_config.json" else (AWQ, old_names)
    directory = write(plain_llama, tmp_path, config).quantized
    said = json.loads((directory / "config.json").read_text())
    del said["quantization_config"]
    (directory / "config.json").write_text(json.dumps(said))
    (directory / name).write_text(json.dumps(beside))
    assert read_config(directory).quantization == StoredInt4(config["quant_method"], 32, int(config is GPTQ))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**GPTQ, "bits": 8}, "'bits' is 8; supported: 4"),
        ({**GPTQ, "group_size": 48}, "'group_size' is 48; supported: multiples of 32, and -1"),
        ({**GPTQ, "lm_head": True}, "'lm_head' is true; supported: false"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "'checkpoint_format' is 'marlin'; supported: gptq, gptq_v2"),
        ({**GPTQ, "dynamic": {"-:.*down.*": {}}}, "'dynamic' gives modules settings of their own"),
        ({**AWQ, "version": "gemv"}, "'version' is gemv; supported: gemm"),
        ({**AWQ, "zero_point": False}, "'zero_point' is false; supported: true"),
        (
            {"quant_method": "bitsandbytes"},
            "quantization 'bitsandbytes' is not supported, only gptq, awq, fp8, fbgemm_fp8 and compressed-tensors are",
        ),
    ],
)
def test_what_is_not_supported_is_named(
    config: dict[str, Any], message: str, plain_llama: Path, tmp_path: Path
) -> None:
    said = json.loads((plain_llama / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**said, "quantization_config": config}))
    with pytest.raises(ConfigError, match=message):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("awq", "--quantize awq: the checkpoint is quantized already, by gptq; leave it out"),
        ("int8", "--quantize int8: the checkpoint is quantized already, by gptq; leave it out"),
    ],
)
def test_a_flag_that_says_something_else_is_refused(
    asked: str, message: str, plain_llama: Path, tmp_path: Path
) -> None:
    directory = write(plain_llama, tmp_path, GPTQ).quantized
    load(directory, "--quantize", "gptq")
    with pytest.raises(ConfigError, match=message):
        load(directory, "--quantize", asked)


@pytest.mark.parametrize("asked", ["gptq", "awq", "compressed-tensors"])
def test_a_plain_checkpoint_is_not_quantized_by_them(asked: str, plain_llama: Path) -> None:
    with pytest.raises(ConfigError, match=f"--quantize {asked}: config.json has no quantization_config"):
        load(plain_llama, "--quantize", asked)


SIZE = {"gate": (128, 64), "down": (64, 128)}


@pytest.fixture(scope="module")
def stored(plain_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[StoredInt4, Path]]:
    """One checkpoint of each method."""
    written = {}
    for config in (GPTQ, AWQ, compressed(32, symmetric=False)):
        name = config["quant_method"]
        directory = write(plain_llama, tmp_path_factory.mktemp(name), config).quantized
        written[name] = (StoredInt4(name, 32, int(name == "gptq")), directory)
    return written


@pytest.mark.parametrize("kind", ["gptq", "awq", "compressed-tensors"])
@pytest.mark.parametrize("unpack", [False, True])
@pytest.mark.parametrize(
    ("module", "out_features", "in_features"),
    [
        ("gate", (0, 128), (0, 64)),
        ("gate", (40, 128), (0, 64)),
        ("gate", (3, 20), (0, 64)),
        ("down", (0, 64), (32, 96)),
        ("down", (0, 64), (96, 128)),
        ("down", (5, 50), (64, 128)),
    ],
)
def test_a_rank_has_the_same_numbers_as_the_whole(
    kind: str,
    unpack: bool,
    module: str,
    out_features: tuple[int, int],
    in_features: tuple[int, int],
    stored: dict[str, tuple[StoredInt4, Path]],
) -> None:
    rows, columns = Slice(SIZE[module][0], *out_features), Slice(SIZE[module][1], *in_features)
    name = f"model.layers.0.mlp.{module}_proj"
    x = torch.eye(len(columns))
    description, directory = stored[kind]
    with Checkpoint(directory, torch.float32, torch.device("cpu")) as checkpoint:
        whole = FourBits(description, unpack=True).linear(
            checkpoint, [name], [Slice.whole(rows.size)], Slice.whole(columns.size), False
        )
        part = FourBits(description, unpack).linear(checkpoint, [name], [rows], columns, False)
    assert isinstance(whole, UnquantizedLinear) and isinstance(part, UnquantizedLinear if unpack else Int4Linear)
    expected = whole.weight[rows.begin : rows.end, columns.begin : columns.end].T
    torch.testing.assert_close(part(x), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("description", "groups"),
    [(StoredInt4("gptq", 128, 1), 2), (StoredInt4("awq", 64), 4), (StoredInt4("gptq", None), 1)],
)
def test_weights_without_numbers_have_the_shapes_of_some(description: StoredInt4, groups: int) -> None:
    nothing = InventedCheckpoint(torch.bfloat16, torch.device("meta"))
    part, inputs = Slice(96, 0, 48), Slice(512, 0, 256)
    layer = FourBits(description, unpack=False).linear(nothing, ["a", "b"], [part, part], inputs, True)
    assert isinstance(layer, Int4Linear) and layer.bias is not None
    assert layer.weight.packed.shape == (32, 96)
    assert layer.weight.scales.shape == layer.weight.zeros.shape == (groups, 96)
    assert layer.bias.shape == (96,)


@pytest.mark.parametrize("config", [GPTQ, compressed(32, symmetric=True)], ids=["gptq", "compressed"])
def test_modules_that_are_stored_plain_stay_plain(config: dict[str, Any], plain_llama: Path, tmp_path: Path) -> None:
    """The whole of a layer, and one of three that are computed as one."""
    plain = ("layers.0.mlp", "layers.1.self_attn.k_proj")
    pair = write(plain_llama, tmp_path, config, is_plain=lambda name: any(part in name for part in plain))
    expected = World(load(pair.plain)).generate(PROMPTS, 8)
    for compute in (load, load_on_torch, load_packed):
        assert World(compute(pair.quantized)).generate(PROMPTS, 8) == expected


ACT_ORDERS = {
    "gptq": {**GPTQ, "desc_act": True},
    "gptq that does not say so": GPTQ,
    "compressed": compressed(32, symmetric=False, actorder="group"),
}


@pytest.mark.parametrize("config", ACT_ORDERS.values(), ids=ACT_ORDERS)
@pytest.mark.parametrize("unpack", [False, True])
@pytest.mark.parametrize(("begin", "end"), [(0, 64), (64, 128), (8, 48)])
def test_a_rank_has_the_same_numbers_as_the_whole_in_act_order(
    begin: int, end: int, unpack: bool, config: dict[str, Any], plain_llama: Path, tmp_path: Path
) -> None:
    """Its inputs are of all groups, of none a whole one."""
    pair = write(plain_llama, tmp_path, config, act_order=True)
    down = "model.layers.0.mlp.down_proj"
    description = read_config(pair.quantized).quantization
    assert isinstance(description, StoredInt4) and description.act_order == (config is not GPTQ)
    with Checkpoint(pair.quantized, torch.float32, torch.device("cpu")) as checkpoint:
        inputs, outputs = Slice(128, begin, end), Slice(64, 5, 50)
        part = FourBits(description, unpack).linear(checkpoint, [down], [outputs], inputs, False)
    expected = load_file(pair.plain / "model.safetensors")[f"{down}.weight"][5:50, begin:end].T
    torch.testing.assert_close(part(torch.eye(end - begin)), expected, atol=1e-6, rtol=1e-6)


def test_a_part_of_a_layer_in_act_order_has_its_shape_before_anybody_has_seen_the_order() -> None:
    nothing = InventedCheckpoint(torch.bfloat16, torch.device("meta"))
    method = FourBits(StoredInt4("gptq", 128, 1, act_order=True), unpack=False)
    part = method.linear(nothing, ["a"], [Slice.whole(96)], Slice(512, 0, 256), False)
    whole = method.linear(nothing, ["a"], [Slice.whole(96)], Slice.whole(512), False)
    assert isinstance(part, Int4Linear) and isinstance(whole, Int4Linear)
    assert part.weight.groups is not None and part.weight.groups.shape == (256,)
    assert part.weight.packed.shape == (32, 96) and part.weight.scales.shape == (4, 96)
    assert whole.weight.groups is None


def test_projections_that_read_in_different_orders_cannot_be_one_layer(plain_llama: Path, tmp_path: Path) -> None:
    directory = write(plain_llama, tmp_path, GPTQ, act_order=True).quantized
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.g_idx"] = tensors["model.layers.1.mlp.up_proj.g_idx"].flip(0).contiguous()
    save_file(tensors, directory / "model.safetensors")
    with pytest.raises(WeightsError, match=r"the inputs of 'model\.layers\.1\.mlp\.up_proj' are in another order"):
        load_packed(directory)
    tensors["model.layers.0.mlp.down_proj.g_idx"] = torch.zeros(128, dtype=torch.int32)
    save_file(tensors, directory / "model.safetensors")
    with pytest.raises(WeightsError, match=r"down_proj: g_idx: expected 32 inputs in each group; config\.json and"):
        load_on_torch(directory)


def test_a_rank_whose_inputs_are_of_groups_that_are_not_there_says_so(plain_llama: Path, tmp_path: Path) -> None:
    config = {**GPTQ, "desc_act": True}
    directory = write(plain_llama, tmp_path, config, act_order=True).quantized
    down = "model.layers.0.mlp.down_proj"
    tensors = load_file(directory / "model.safetensors")
    tensors[f"{down}.g_idx"][3] = 4
    save_file(tensors, directory / "model.safetensors")
    method = FourBits(StoredInt4("gptq", 32, 1, act_order=True), unpack=False)
    with (
        Checkpoint(directory, torch.float32, torch.device("cpu")) as checkpoint,
        pytest.raises(WeightsError, match=r"down_proj: g_idx: expected groups below 4; config\.json and the weights"),
    ):
        method.linear(checkpoint, [down], [Slice.whole(64)], Slice(128, 0, 64), False)


@pytest.mark.parametrize(
    ("size", "begin", "end", "group_size", "expected"),
    [
        (256, 0, 256, 128, Groups(128, (0, 1))),
        (256, 128, 256, 128, Groups(128, (1,))),
        (200, 0, 200, 128, Groups(128, (0, 1))),
        (512, 64, 448, 128, Groups(64, (0, 1, 1, 2, 2, 3))),
        (256, 32, 96, 128, Groups(64, (0,))),
        (256, 64, 128, None, Groups(64, (0,))),
    ],
)
def test_groups_of_a_part(size: int, begin: int, end: int, group_size: int | None, expected: Groups) -> None:
    assert groups_of(Slice(size, begin, end), group_size, "down") == expected


def test_parts_of_groups_that_no_product_steps_along_are_refused() -> None:
    with pytest.raises(ConfigError, match="down: a rank has the inputs 16 to 200, which cuts groups of 128"):
        groups_of(Slice(256, 16, 200), 128, "down")


def test_every_input_of_a_part_is_in_its_own_group() -> None:
    for begin in range(0, 512, 32):
        for end in range(begin + 32, 513, 32):
            groups = groups_of(Slice(512, begin, end), 128, "down")
            found = np.repeat(groups.stored, groups.size)[: end - begin]
            assert (found == np.arange(begin, end) // 128).all(), (begin, end)
