"""What a rank packs is its slice of what one alone packs, however the weights are stored."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from eight_bit_checkpoints import KINDS
from eight_bit_checkpoints import write as write_eight_bits
from int4_checkpoints import compressed, write
from test_quantization import SIZES, Gguf, values_of
from tiny_models import save

from headrace_kernels import native
from headrace_kernels.decoder import DecoderWeights
from headrace_kernels.kv_cache import padded_head_dim
from headrace_kernels.linear import DENSE, PackedLinear
from headrace_server.errors import ConfigError
from headrace_server.models.config import ModelConfig
from headrace_server.models.packed import packed_weights
from headrace_server.models.registry import read_config
from headrace_server.models.split import BLOCKS_INNER_UNIT, Split
from headrace_server.quantization.maker import linear_maker
from headrace_server.weights.arrays import ArrayCheckpoint
from headrace_server.weights.index import SOURCE_LINK

RANKS = pytest.mark.parametrize("world_size", [2, 3, 4])
BIASES = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}


def pack(directory: Path, rank: int = 0, world_size: int = 1, quantize: str | None = None) -> DecoderWeights:
    config = read_config(directory)
    split = Split.of(config, rank, world_size, BLOCKS_INNER_UNIT)
    linears = linear_maker(config.quantization, quantize, directory, native.FLOAT32)
    with ArrayCheckpoint(directory) as checkpoint:
        return packed_weights(config, split, checkpoint, native.FLOAT32, linears)


def assert_slices(directory: Path, world_size: int, quantize: str | None = None) -> None:
    config, whole = read_config(directory), pack(directory, quantize=quantize)
    for rank in range(world_size):
        split = Split.of(config, rank, world_size, BLOCKS_INNER_UNIT)
        part = pack(directory, rank, world_size, quantize)
        assert part.carries_residual == (rank == 0)
        vocabulary = slice(split.vocabulary.start, split.vocabulary.stop)
        same(part.embedding, whole.embedding[vocabulary])
        same(matrix(part.head)[: len(split.vocabulary)], matrix(whole.head)[vocabulary])
        for ours, all_of_it in zip(part.layers, whole.layers, strict=True):
            for name, (expected, rows, inputs) in expected_slices(all_of_it, config, split).items():
                layer = getattr(ours, name)
                same(matrix(layer), matrix(expected)[rows][:, inputs])
                added_up = name in ("output", "down")
                if expected.bias is not None and not (added_up and rank > 0):
                    same(layer.bias, expected.bias[rows])
                else:
                    assert layer.bias is None


def expected_slices(layer: Any, config: ModelConfig, split: Split) -> Mapping[str, Any]:
    """Name → (the whole layer, its columns that are the rank's, its inputs that are)."""
    dim, query, kv = config.head_dim, config.num_heads, config.num_kv_heads
    keys = np.arange(split.kv_heads.start, split.kv_heads.stop)
    heads = np.concatenate(
        (np.arange(split.query_heads.start, split.query_heads.stop), query + keys, query + kv + keys)
    )
    columns = (heads[:, None] * padded_head_dim(dim) + np.arange(padded_head_dim(dim))).ravel()
    inner = np.arange(split.inner.start, split.inner.stop)
    pairs = np.stack((inner // 16 * 32 + inner % 16, inner // 16 * 32 + 16 + inner % 16))
    gates_and_ups = np.concatenate([pairs[:, i : i + 16].ravel() for i in range(0, len(inner), 16)])
    every = slice(None)
    slices = {"gate_up": (layer.gate_up, gates_and_ups, every), "down": (layer.down, every, inner)}
    if split.has_attention:
        inputs = slice(split.query_heads.start * dim, split.query_heads.stop * dim)
        slices |= {"qkv": (layer.qkv, columns, every), "output": (layer.output, every, inputs)}
    return slices


def matrix(layer: PackedLinear) -> np.ndarray:
    """[columns, in_features]."""
    if layer.kind != DENSE:
        return values_of(layer)
    panels = layer.panels.view(np.float32).reshape(layer.num_panels, -1, 16)
    return panels.swapaxes(1, 2).reshape(-1, panels.shape[1])[:, : layer.in_features]


def same(ours: Any, expected: Any) -> None:
    assert np.array_equal(ours, expected)


@RANKS
def test_of_plain_weights_and_biases(world_size: int, tmp_path: Path) -> None:
    sizes = {"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 96, "intermediate_size": 112}
    assert_slices(save("Llama", tmp_path, **sizes, **BIASES).directory, world_size)


@RANKS
@pytest.mark.parametrize("quantize", ["int8", "int4"])
def test_of_weights_that_are_quantized_when_they_are_loaded(quantize: str, world_size: int, tmp_path: Path) -> None:
    """Slices begin where groups do, so a rank rounds as one alone does."""
    assert_slices(save("Llama", tmp_path, **SIZES, **BIASES).directory, world_size, quantize)


@RANKS
@pytest.mark.parametrize(
    ("config", "act_order"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, False),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, True),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, False),
        (compressed(32, symmetric=False), False),
    ],
    ids=["gptq", "gptq in the order of act", "awq", "compressed-tensors"],
)
def test_of_checkpoints_of_4_bits(config: dict[str, Any], act_order: bool, world_size: int, tmp_path: Path) -> None:
    """Heads of 12: slices begin within words of 8 numbers."""
    sizes = {"num_attention_heads": 4, "num_key_value_heads": 4, "hidden_size": 96, "head_dim": 12}
    plain = save("Llama", tmp_path / "model", intermediate_size=128, **sizes)
    assert_slices(write(plain.directory, tmp_path, config, act_order=act_order).quantized, world_size)


@RANKS
@pytest.mark.parametrize("kind", KINDS)
def test_of_checkpoints_of_8_bits(kind: str, world_size: int, tmp_path: Path) -> None:
    plain = save("Llama", tmp_path / "model", **{**SIZES, "intermediate_size": 384})
    assert_slices(write_eight_bits(plain.directory, tmp_path, KINDS[kind]).quantized, world_size)


@RANKS
@pytest.mark.parametrize(("block_type", "quantize"), [("Q8_0", "int8"), ("Q4_0", "int4"), ("Q4_1", "int4")])
def test_of_a_ggufs_blocks(block_type: str, quantize: str, world_size: int, tmp_path: Path) -> None:
    assert_slices(gguf(tmp_path, block_type, {"down_proj": (256, 1024), "o_proj": (256, 256)}), world_size, quantize)


@RANKS
def test_of_a_ggufs_largest_blocks(world_size: int, tmp_path: Path) -> None:
    """Columns of the feed-forward layer are shared out in units of 256."""
    assert_slices(gguf(tmp_path, "Q4_K", {"down_proj": (256, 1024), "up_proj": (1024, 256)}), world_size, "int4")


def test_a_block_that_would_be_cut_is_an_error_with_the_flag(tmp_path: Path) -> None:
    directory = gguf(tmp_path, "Q4_K", {"o_proj": (256, 256)})
    with pytest.raises(
        ConfigError,
        match=r"o_proj: a rank has the inputs 128 to 256, which cuts the GGUF's blocks of 256 weights \(Q4_K\); "
        "take another --num-shard",
    ):
        pack(directory, 1, 2, "int4")


def gguf(root: Path, block_type: str, modules: dict[str, tuple[int, int]]) -> Path:
    """A model some of whose modules lie in blocks of random bits, but for those that would make a scale infinite."""
    made = Gguf(save("Llama", root / "plain", **{**SIZES, "intermediate_size": 1024}), root / "model")
    for layer in range(2):
        for module, shape in modules.items():
            part = "mlp" if shape[0] != shape[1] else "self_attn"
            made.holds(f"model.layers.{layer}.{part}.{module}.weight", block_type, shape)
    source = made.directory / SOURCE_LINK
    source.write_bytes(np.random.default_rng(1).integers(0, 64, source.stat().st_size, np.uint8).tobytes())
    return made.directory
