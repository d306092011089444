"""A GGUF becomes a directory that transformers loads, with the weights it had."""

import json
import struct

import gguf
import numpy as np
import pytest
import torch
from block_formats import SIZES, dequantize, random_blocks
from gguf import GGMLQuantizationType as Type
from safetensors.torch import load_file
from tiny_ggufs import HEAD_DIM, HIDDEN, INNER, KV_HEADS, LAYERS, TinyTokenizer, random_tensors, write_gguf
from transformers import AutoModelForCausalLM

from headrace_server.prepare.rope_scaling import llama3_factors
from headrace_server.weights.bfloat16 import to_bfloat16

ARCHITECTURES = ["llama", "qwen2", "qwen3", "smollm3"]


def config_of(outcome):
    return json.loads((outcome.directory / "config.json").read_text())


def bfloat16(values):
    return torch.from_numpy(to_bfloat16(values).view(np.int16).copy()).view(torch.bfloat16)


def reference_model(architecture, seed=3, **extra):
    """A small random transformers model whose weights are bfloat16 numbers."""
    from transformers import LlamaConfig, Qwen2Config, Qwen3Config, SmolLM3Config

    kinds = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config, "smollm3": SmolLM3Config}
    config = kinds[architecture](
        vocab_size=264,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS * 2,  # SmolLM3 leaves rotation out of the fourth
        num_attention_heads=4,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=0,
        **extra,
    )
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((torch.randn(parameter.shape) * 0.1).to(torch.bfloat16))
    return model


def permuted(rows, heads):
    """What llama.cpp's converter does to query and key rows: halves become neighbours."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def exported_tensors(model, architecture):
    """The model's weights under GGUF names, by the library's own table of names."""
    kind = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(kind, LAYERS * 2)
    tensors = {}
    for name, value in model.state_dict().items():
        values = value.numpy()
        if architecture in ("llama", "smollm3") and ("q_proj" in name or "k_proj" in name):
            values = permuted(values, 4 if "q_proj" in name else KV_HEADS)
        tensors[names.get_name(name, try_suffixes=(".weight", ".bias"))] = values.copy()
    return tensors


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_converted_model_computes_what_the_original_does(architecture, tmp_path, prepare):
    extra = {"attention_bias": True} if architecture == "llama" else {}
    model = reference_model(architecture, **extra)
    path = write_gguf(
        tmp_path / "model.gguf",
        architecture,
        config={"block_count": LAYERS * 2},
        tensors=exported_tensors(model, architecture),
    )
    converted = AutoModelForCausalLM.from_pretrained(prepare(path).directory, dtype=torch.float32)
    ids = torch.randint(0, 264, (1, 40), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        assert torch.equal(converted(ids).logits, model(ids).logits)
    assert converted.config.model_type == architecture


@pytest.mark.parametrize("block_type", SIZES, ids=lambda block_type: block_type.name)
def test_weights_are_dequantised_and_rounded_to_bfloat16(block_type, tmp_path, prepare):
    blocks = random_blocks(block_type, (HIDDEN, INNER), seed=21)
    tensors = {"blk.1.ffn_down.weight": (blocks, block_type)}
    weights = load_file(prepare(write_gguf(tmp_path / "m.gguf", tensors=tensors)).directory / "model.safetensors")
    expected = bfloat16(dequantize(blocks[:16], block_type))
    assert torch.equal(weights["model.layers.1.mlp.down_proj.weight"][:16], expected)


@pytest.mark.parametrize("block_type", [Type.F16, Type.BF16], ids=lambda block_type: block_type.name)
def test_unquantised_files_convert_too(block_type, tmp_path, prepare):
    path = write_gguf(tmp_path / "m.gguf", block_type=block_type)
    weights = load_file(prepare(path).directory / "model.safetensors")
    values = random_tensors("llama", 264)["blk.0.attn_v.weight"]
    if block_type is Type.F16:
        values = values.astype(np.float16).astype(np.float32)
    assert torch.equal(weights["model.layers.0.self_attn.v_proj.weight"], bfloat16(values))


def test_query_rows_of_quantised_blocks_are_put_back_into_order(tmp_path, prepare):
    blocks = random_blocks(Type.Q4_1, (HIDDEN, HIDDEN), seed=4)
    path = write_gguf(tmp_path / "m.gguf", tensors={"blk.0.attn_q.weight": (blocks, Type.Q4_1)})
    weights = load_file(prepare(path).directory / "model.safetensors")
    values = dequantize(blocks, Type.Q4_1).reshape(4, HEAD_DIM // 2, 2, HIDDEN)
    in_halves = np.concatenate([values[:, :, 0], values[:, :, 1]], axis=1).reshape(HIDDEN, HIDDEN)
    assert torch.equal(weights["model.layers.0.self_attn.q_proj.weight"], bfloat16(in_halves))


def test_norms_are_rounded_to_bfloat16_too(tmp_path, prepare):
    norm = np.linspace(0.5, 1.5, HIDDEN, dtype=np.float32)
    path = write_gguf(tmp_path / "m.gguf", tensors={"output_norm.weight": norm})
    weights = load_file(prepare(path).directory / "model.safetensors")
    assert torch.equal(weights["model.norm.weight"], bfloat16(norm))


def test_embeddings_are_tied_when_the_file_has_no_output(tmp_path, prepare):
    outcome = prepare(write_gguf(tmp_path / "m.gguf"))
    assert config_of(outcome)["tie_word_embeddings"] is True
    assert "lm_head.weight" not in load_file(outcome.directory / "model.safetensors")


def test_a_bias_that_only_some_projections_have_is_zero_for_the_others(tmp_path, prepare):
    bias = np.full(KV_HEADS * HEAD_DIM, 0.5, dtype=np.float32)
    outcome = prepare(write_gguf(tmp_path / "m.gguf", tensors={f"blk.{n}.attn_v.bias": bias for n in range(LAYERS)}))
    weights = load_file(outcome.directory / "model.safetensors")
    assert config_of(outcome)["attention_bias"] is True
    assert weights["model.layers.0.self_attn.v_proj.bias"].eq(0.5).all()
    assert weights["model.layers.0.self_attn.o_proj.bias"].eq(0).all()


def test_config_says_what_the_metadata_says(tmp_path, prepare):
    config = config_of(prepare(write_gguf(tmp_path / "m.gguf")))
    assert config == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "vocab_size": 264,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 0,
        "pad_token_id": None,
    }


def test_heads_may_be_wider_than_the_hidden_size_divided_by_their_number(tmp_path, prepare):
    wide = 2 * HEAD_DIM
    tensors = {}
    for layer in range(LAYERS):
        tensors[f"blk.{layer}.attn_q.weight"] = np.zeros((4 * wide, HIDDEN), np.float32)
        tensors[f"blk.{layer}.attn_k.weight"] = np.zeros((KV_HEADS * wide, HIDDEN), np.float32)
        tensors[f"blk.{layer}.attn_v.weight"] = np.zeros((KV_HEADS * wide, HIDDEN), np.float32)
        tensors[f"blk.{layer}.attn_output.weight"] = np.zeros((HIDDEN, 4 * wide), np.float32)
        tensors[f"blk.{layer}.attn_q_norm.weight"] = np.zeros(wide, np.float32)
        tensors[f"blk.{layer}.attn_k_norm.weight"] = np.zeros(wide, np.float32)
    sizes = {"attention.key_length": wide, "attention.value_length": wide}
    outcome = prepare(write_gguf(tmp_path / "m.gguf", "qwen3", config=sizes, tensors=tensors))
    assert config_of(outcome)["head_dim"] == wide


def test_a_sliding_window_makes_it_a_mistral(tmp_path, prepare):
    config = config_of(prepare(write_gguf(tmp_path / "m.gguf", config={"attention.sliding_window": 64})))
    assert (config["model_type"], config["sliding_window"]) == ("mistral", 64)
    assert config["architectures"] == ["MistralForCausalLM"]


def test_smollm3_leaves_rotation_out_of_every_fourth_layer(tmp_path, prepare):
    config = config_of(prepare(write_gguf(tmp_path / "m.gguf", "smollm3")))
    assert config["no_rope_layer_interval"] == 4
    assert config["no_rope_layers"] == [1, 1]


def test_all_tokens_that_end_an_answer_are_stops(tmp_path, prepare):
    tokenizer = TinyTokenizer(extra={"eot_token_id": 2})
    directory = prepare(write_gguf(tmp_path / "m.gguf", tokenizer=tokenizer)).directory
    assert json.loads((directory / "generation_config.json").read_text()) == {"bos_token_id": 1, "eos_token_id": [0, 2]}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, None),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 4.0}, None),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        ({"rope.scale_linear": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        (
            {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": 4.0,
                "rope.scaling.original_context_length": 32,
                "rope.scaling.yarn_beta_fast": 16.0,
            },
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 16.0},
        ),
    ],
    ids=["absent", "none", "linear", "older linear", "yarn"],
)
def test_rope_scaling_of_the_metadata(keys, expected, tmp_path, prepare):
    assert config_of(prepare(write_gguf(tmp_path / "m.gguf", config=keys)))["rope_scaling"] == expected


@pytest.mark.parametrize(
    ("factor", "low", "high", "original"), [(8.0, 1.0, 4.0, 8192), (32.0, 1.0, 4.0, 8192), (8.0, 2.0, 9.0, 4096)]
)
def test_llama3_scaling_is_found_again_from_its_factors(factor, low, high, original, tmp_path, prepare):
    inverse_frequencies = 500_000.0 ** -(np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))
    factors = llama3_factors(inverse_frequencies, factor, low, high, original).astype(np.float32)
    path = write_gguf(tmp_path / "m.gguf", config={"rope.freq_base": 500_000.0}, tensors={"rope_freqs.weight": factors})
    outcome = prepare(path)
    scaling = config_of(outcome)["rope_scaling"]
    assert scaling["rope_type"] == "llama3"
    model = AutoModelForCausalLM.from_pretrained(outcome.directory, dtype=torch.float32)
    np.testing.assert_allclose(model.model.rotary_emb.inv_freq, inverse_frequencies / factors, rtol=1e-4)
    if (low, high, original) == (1.0, 4.0, 8192):
        assert (scaling["low_freq_factor"], scaling["high_freq_factor"]) == (1.0, 4.0)
        assert scaling["original_max_position_embeddings"] == 8192


def test_factors_of_one_are_no_scaling(tmp_path, prepare):
    path = write_gguf(tmp_path / "m.gguf", tensors={"rope_freqs.weight": np.ones(HEAD_DIM // 2, np.float32)})
    assert config_of(prepare(path))["rope_scaling"] is None


def test_the_data_of_the_safetensors_file_is_aligned(tmp_path, prepare):
    file = prepare(write_gguf(tmp_path / "m.gguf")).directory / "model.safetensors"
    length = struct.unpack("<Q", file.read_bytes()[:8])[0]
    assert (8 + length) % 8 == 0


# What is refused, and that nothing is left behind.


def refused(prepare, cache, path):
    error = prepare(path).error
    assert not cache.exists() or list(cache.iterdir()) == []
    assert str(path) in error
    return error


def test_a_truncated_file_is_refused(tmp_path, prepare, cache):
    path = write_gguf(tmp_path / "m.gguf")
    whole = path.read_bytes()
    for length in (10, 30, 2_000, 20_000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert "truncated" in refused(prepare, cache, path)


def test_a_file_of_another_kind_is_refused(tmp_path, prepare, cache):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    assert "not a GGUF file" in refused(prepare, cache, path)
    path.write_bytes(b"")
    assert "not a GGUF file" in refused(prepare, cache, path)


def test_an_unknown_architecture_is_refused(tmp_path, prepare, cache):
    error = refused(prepare, cache, write_gguf(tmp_path / "m.gguf", "mamba"))
    assert "'mamba' is not supported" in error
    assert "llama, qwen2, qwen3, smollm3" in error


@pytest.mark.parametrize("key", ["tokens", "model"])
def test_a_file_without_tokenizer_is_refused(key, tmp_path, prepare, cache):
    path = write_gguf(tmp_path / "m.gguf", tokenizer=TinyTokenizer(extra={key: None}))
    assert "no tokenizer" in refused(prepare, cache, path)


def test_a_block_type_that_cannot_be_converted_is_refused_by_name(tmp_path, prepare, cache):
    blocks = np.zeros((HIDDEN, INNER // 256 * 84), np.uint8)
    path = write_gguf(tmp_path / "m.gguf", tensors={"blk.1.ffn_down.weight": (blocks, Type.Q2_K)})
    error = refused(prepare, cache, path)
    assert "blk.1.ffn_down.weight" in error
    assert "Q2_K" in error


@pytest.mark.parametrize(
    ("tensors", "config", "words"),
    [
        ({"blk.0.attn_k.weight": None}, {}, "blk.0.attn_k.weight is missing"),
        ({"token_embd.weight": None}, {}, "token_embd.weight is missing"),
        ({"blk.0.mystery.weight": np.zeros(4, np.float32)}, {}, "blk.0.mystery.weight is not part of"),
        ({"output_norm.weight": np.zeros(8, np.float32)}, {}, "output_norm.weight has the shape [8]"),
        ({}, {"expert_count": 8}, "mixture of experts"),
        ({}, {"block_count": None}, "lacks llama.block_count"),
        ({}, {"rope.dimension_count": 16}, "llama.rope.dimension_count is 16"),
        ({}, {"attention.head_count_kv": [2, 1]}, "differs between layers"),
        ({}, {"rope.scaling.type": "longrope"}, "longrope"),
        ({}, {"rope.scaling.type": "spiral"}, "'spiral' is not supported"),
        ({"rope_freqs.weight": np.linspace(1, 3, 32, dtype=np.float32)}, {}, "does not follow Llama 3"),
    ],
)
def test_a_model_that_is_not_understood_is_refused(tensors, config, words, tmp_path, prepare, cache):
    path = write_gguf(tmp_path / "m.gguf", tensors=tensors, config=config)
    assert words in refused(prepare, cache, path)


def test_one_part_of_a_split_file_is_refused(tmp_path, prepare, cache):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "gguf-split --merge" in refused(prepare, cache, tmp_path / "m.gguf")


def test_a_path_that_does_not_exist_is_refused(tmp_path, prepare, cache):
    assert "no such file" in refused(prepare, cache, tmp_path / "absent.gguf")
