"""Ranks with quantized weights are one model, as GPUs have them and as CPUs expand them."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from eight_bit_checkpoints import KINDS
from eight_bit_checkpoints import write as write_eight_bits
from int4_checkpoints import compressed
from int4_checkpoints import write as write_four_bits
from ranks_world import Ranks, SplitWorld
from safetensors.torch import load_file, save_file
from shard_world import SMALL, World, load, load_on_torch, random_tokens
from tiny_models import llama

from headrace_kernels.quantize_rows import quantize_rows
from headrace_server.models.registry import read_config
from headrace_server.models.split import Split
from headrace_server.quantization.eight_bit_checkpoint import EightBitCheckpoint
from headrace_server.quantization.eight_bits import DTYPES, EightBits
from headrace_server.quantization.four_bits import FourBits
from headrace_server.quantization.stored import StoredEightBits, StoredInt4
from headrace_server.sampling.parameters import SamplingParameters

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32}
PROMPTS = {row: random_tokens(length, seed=row) for row, length in ((0, 11), (1, 5))}
TOKENS = 6


@pytest.fixture(scope="module", params=[2, 3], ids=lambda count: f"{count} ranks")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(request.param, tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three KV heads, whose query heads are one group of inputs each; of four groups of columns one rank of three has
    two."""
    sizes = {"hidden_size": 96, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 128}
    return llama(tmp_path_factory.mktemp("plain"), **sizes, num_hidden_layers=2, initializer_range=0.15).directory


FOUR_BITS: dict[str, tuple[dict[str, Any], bool]] = {
    "gptq": (GPTQ, False),
    "gptq in act-order": ({**GPTQ, "desc_act": True}, True),
    "awq": (AWQ, False),
    "compressed": (compressed(32, symmetric=False), False),
    "compressed, in act-order": (compressed(32, symmetric=False, actorder="group"), True),
}


@pytest.mark.parametrize("kind", FOUR_BITS)
def test_4_bits_give_the_tokens_of_one_rank(kind: str, ranks: Ranks, plain: Path, tmp_path: Path) -> None:
    config, act_order = FOUR_BITS[kind]
    directory = write_four_bits(plain, tmp_path, config, act_order=act_order).quantized
    stored = read_config(directory).quantization
    assert isinstance(stored, StoredInt4)
    method = FourBits(stored, unpack=False)
    alone = World(load_on_torch(directory, method=method), **SMALL).generate(PROMPTS, TOKENS)
    assert SplitWorld(ranks.load(directory, way="torch", method=method), **SMALL).generate(PROMPTS, TOKENS) == alone


def test_products_by_triton_give_them_too(ranks: Ranks, plain: Path, tmp_path: Path) -> None:
    """In its interpreter: of whole layers in act-order, and of inputs of any groups."""
    config, act_order = FOUR_BITS["gptq in act-order"]
    directory = write_four_bits(plain, tmp_path, config, act_order=act_order).quantized
    stored = read_config(directory).quantization
    assert isinstance(stored, StoredInt4)
    method = FourBits(stored, unpack=False)
    alone = World(load_on_torch(directory, method=method), **SMALL).generate(PROMPTS, 2)
    ranks.all("prefer", "triton")
    try:
        assert SplitWorld(ranks.load(directory, way="torch", method=method), **SMALL).generate(PROMPTS, 2) == alone
    finally:
        ranks.all("prefer", None)


def eight_bits_of(directory: Path, rows: torch.dtype | None) -> EightBitCheckpoint:
    stored = read_config(directory).quantization
    assert isinstance(stored, StoredEightBits)
    return EightBitCheckpoint(stored, rows)


@pytest.mark.parametrize("name", ["fp8", "fp8 in blocks", "float, channels", "int8"])
def test_checkpoints_in_8_bits_give_the_tokens_of_one_rank(
    name: str, ranks: Ranks, plain: Path, tmp_path: Path
) -> None:
    directory = write_eight_bits(plain, tmp_path, KINDS[name]).quantized
    method = eight_bits_of(directory, None)
    alone = World(load_on_torch(directory, method=method), **SMALL).generate(PROMPTS, TOKENS)
    assert SplitWorld(ranks.load(directory, way="torch", method=method), **SMALL).generate(PROMPTS, TOKENS) == alone


@pytest.mark.parametrize("name", ["fp8", "fp8 in blocks", "float in blocks", "float, channels", "int8"])
def test_a_cpu_expands_its_part_of_8_bits(name: str, ranks: Ranks, plain: Path, tmp_path: Path) -> None:
    directory = write_eight_bits(plain, tmp_path, KINDS[name]).quantized
    alone = World(load(directory), **SMALL).generate(PROMPTS, TOKENS)
    assert SplitWorld(ranks.load(directory), **SMALL).generate(PROMPTS, TOKENS) == alone


@pytest.mark.parametrize("act_order", [False, True])
def test_a_cpu_unpacks_its_part_of_4_bits(act_order: bool, ranks: Ranks, plain: Path, tmp_path: Path) -> None:
    config = compressed(32, symmetric=False, actorder="group" if act_order else None)
    directory = write_four_bits(plain, tmp_path, config, act_order=act_order).quantized
    alone = World(load(directory), **SMALL).generate(PROMPTS, TOKENS)
    assert SplitWorld(ranks.load(directory), **SMALL).generate(PROMPTS, TOKENS) == alone


@pytest.mark.parametrize("name", DTYPES)
def test_each_rank_scales_the_outputs_of_its_part(name: str, ranks: Ranks, plain: Path, tmp_path: Path) -> None:
    """Where plain weights become 8 bits: the tokens are those of weights that were rounded part by part."""
    config, world_size = read_config(plain), len(ranks.pipes)
    splits = [Split.of(config, rank, world_size) for rank in range(world_size)]
    parts = {
        "o_proj.weight": [len(split.query_heads) * config.head_dim for split in splits],
        "down_proj.weight": [len(split.inner) for split in splits],
    }
    directory = tmp_path / "rounded"
    shutil.copytree(plain, directory)
    tensors = load_file(plain / "model.safetensors")
    for key, tensor in tensors.items():
        if key.endswith("_proj.weight"):
            widths = next((widths for end, widths in parts.items() if key.endswith(end)), [tensor.shape[1]])
            rounded = [quantize_rows(part, DTYPES[name]) for part in tensor.split(widths, dim=1)]
            tensors[key] = torch.cat([part.values.float() * part.scales[:, None] for part in rounded], dim=1)
    save_file(tensors, directory / "model.safetensors")
    expected = World(load_on_torch(directory), **SMALL).generate(PROMPTS, TOKENS)
    split = ranks.load(plain, way="torch", method=EightBits(DTYPES[name], None))
    assert SplitWorld(split, **SMALL).generate(PROMPTS, TOKENS) == expected


def told(world: World) -> np.ndarray:
    """The log-probability of each prompt's first answer."""
    asked = {row: (prompt, SamplingParameters(logprobs=True)) for row, prompt in PROMPTS.items()}
    return np.array(world.step(new=asked, chunks={row: len(prompt) for row, prompt in PROMPTS.items()}).logprobs)


@pytest.mark.parametrize("name", ["fp8", "int8"])
def test_rows_that_each_rank_rounds_in_parts_are_nearly_those_of_one(
    name: str, ranks: Ranks, plain: Path, tmp_path: Path
) -> None:
    directory = write_eight_bits(plain, tmp_path, KINDS[name]).quantized
    method = eight_bits_of(directory, KINDS[name].dtype)
    alone = told(World(load_on_torch(directory, method=method), **SMALL))
    moved = np.abs(told(SplitWorld(ranks.load(directory, way="torch", method=method), **SMALL)) - alone)
    assert 0 < moved.max() < 0.3
