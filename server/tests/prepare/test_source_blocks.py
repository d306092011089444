"""The blocks of a GGUF, found again from the model that it was converted to."""

import json

import numpy as np
import pytest
import torch
from block_formats import SIZES, dequantize, random_blocks
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file
from tiny_ggufs import HEAD_DIM, HIDDEN, INNER, KV_HEADS, write_gguf

from headrace_kernels import quantized_linear
from headrace_server.quantization.packed import BLOCKS
from headrace_server.weights.source_blocks import SourceBlocks

READABLE = [Type[name] for name in BLOCKS]


def bfloat16(values):
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)


def all_blocks(block_type):
    """Random blocks for a projection of each kind, permuted by the converter or not."""
    shapes = {"attn_q": HIDDEN, "attn_k": KV_HEADS * HEAD_DIM, "attn_v": KV_HEADS * HEAD_DIM, "ffn_up": INNER}
    return {
        f"blk.0.{name}.weight": (random_blocks(block_type, (rows, HIDDEN), seed=rows), block_type)
        for name, rows in shapes.items()
    }


@pytest.mark.parametrize("block_type", READABLE, ids=lambda block_type: block_type.name)
def test_packed_blocks_are_the_converted_weights_before_they_were_rounded(block_type, tmp_path, prepare):
    tensors = all_blocks(block_type)
    directory = prepare(write_gguf(tmp_path / "m.gguf", tensors=tensors)).directory
    source, weights = SourceBlocks.of(directory), load_file(directory / "model.safetensors")
    kind = BLOCKS[block_type.name]
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.up_proj"):
        rows = source.get(f"model.layers.0.{name}.weight")
        assert (rows.type, rows.shape[1]) == (block_type.name, HIDDEN)
        blocks = quantized_linear.Blocks(kind, HIDDEN, rows.data, rows.order)
        values = quantized_linear.dequantize(quantized_linear.pack([blocks], kind))
        assert torch.equal(bfloat16(values), weights[f"model.layers.0.{name}.weight"])
    up = tensors["blk.0.ffn_up.weight"][0]
    np.testing.assert_array_equal(values[:8], dequantize(up[:8], block_type))


@pytest.mark.parametrize("block_type", SIZES, ids=lambda block_type: block_type.name)
def test_every_matrix_that_lies_in_blocks_is_in_the_table(block_type, tmp_path, prepare):
    tensors = {"blk.1.ffn_down.weight": (random_blocks(block_type, (HIDDEN, INNER), seed=3), block_type)}
    directory = prepare(write_gguf(tmp_path / "m.gguf", tensors=tensors)).directory
    table = json.loads((directory / "source-blocks.json").read_text())["tensors"]
    assert {name: entry["type"] for name, entry in table.items()} == {
        "model.layers.1.mlp.down_proj.weight": block_type.name
    }
    rows = SourceBlocks.of(directory).get("model.layers.1.mlp.down_proj.weight")
    assert rows.order is None
    np.testing.assert_array_equal(rows.data, tensors["blk.1.ffn_down.weight"][0])


def test_only_models_whose_rows_the_converter_moves_have_an_order(tmp_path, prepare):
    for architecture, moved in (("llama", True), ("qwen2", False)):
        tensors = all_blocks(Type.Q4_1)
        directory = prepare(write_gguf(tmp_path / f"{architecture}.gguf", architecture, tensors=tensors)).directory
        source = SourceBlocks.of(directory)
        for name, permuted in (("q_proj", moved), ("k_proj", moved), ("v_proj", False)):
            rows = source.get(f"model.layers.0.self_attn.{name}.weight")
            assert (rows.order is not None) == permuted, name


def test_unquantised_files_and_plain_checkpoints_have_no_blocks(tmp_path, prepare):
    directory = prepare(write_gguf(tmp_path / "m.gguf", block_type=Type.F16)).directory
    assert SourceBlocks.of(directory).get("model.layers.0.mlp.up_proj.weight") is None
    assert SourceBlocks.of(tmp_path).get("model.layers.0.mlp.up_proj.weight") is None


@pytest.mark.parametrize("harm", ["gone", "longer", "no table"])
def test_a_source_that_is_not_what_was_converted_is_not_used_and_said_so(harm, tmp_path, prepare, caplog):
    path = write_gguf(tmp_path / "m.gguf", tensors=all_blocks(Type.Q4_0))
    directory = prepare(path).directory
    if harm == "gone":
        path.unlink()
    elif harm == "longer":
        path.write_bytes(path.read_bytes() + b"more")
    else:
        (directory / "source-blocks.json").write_text('{"bytes": 3}')
    assert SourceBlocks.of(directory).get("model.layers.0.mlp.up_proj.weight") is None
    assert "the blocks of" in caplog.text and "are not used, but its converted weights" in caplog.text
