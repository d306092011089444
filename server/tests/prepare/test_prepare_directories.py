"""Local directories are checked and used where they are."""

import json
import struct

import pytest

from headrace_server.architectures import MODEL_TYPES
from headrace_server.models.registry import ARCHITECTURES
from headrace_server.prepare.checkpoint import weight_files


def safetensors(path, size=16):
    header = json.dumps({"w": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
    return path


@pytest.fixture
def model(tmp_path):
    """A directory that is just enough of a model."""
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text('{"model_type": "qwen3"}')
    (directory / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    safetensors(directory / "model.safetensors")
    return directory


def shard(model, present=("a", "b"), named=("a", "b")):
    (model / "model.safetensors").unlink()
    for name in present:
        safetensors(model / f"{name}.safetensors")
    weight_map = {f"w{name}": f"{name}.safetensors" for name in named}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_a_good_directory_is_used_as_it_is(model, prepare, cache):
    outcome = prepare(model)
    assert outcome.result == {"model_dir": str(model), "model_id": str(model), "revision": None}
    assert not cache.exists()


def test_a_relative_path_becomes_absolute(model, prepare, monkeypatch):
    monkeypatch.chdir(model.parent)
    assert prepare("./model").directory == model


def test_shards_are_those_that_the_index_names(model, prepare):
    shard(model)
    safetensors(model / "consolidated.safetensors")
    assert prepare(model).directory == model
    assert [file.name for file in weight_files(model)] == ["a.safetensors", "b.safetensors"]


def test_shards_without_index_are_all_of_them(model, prepare):
    (model / "model.safetensors").rename(model / "model-2.safetensors")
    safetensors(model / "model-1.safetensors")
    assert prepare(model).directory == model
    assert [file.name for file in weight_files(model)] == ["model-1.safetensors", "model-2.safetensors"]


def test_a_missing_shard_is_named(model, prepare):
    shard(model, present=("a",))
    assert f"{model / 'b.safetensors'}: missing (1 of the 2" in prepare(model).error


def test_a_truncated_shard_is_named_with_both_sizes(model, prepare):
    shard(model)
    file = model / "b.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    error = prepare(model).error
    assert f"{file}: has {len(whole) - 1} bytes and should have {len(whole)}" in error


@pytest.mark.parametrize("content", [b"", b"\x01", b"\xff" * 40, struct.pack("<Q", 4) + b"nope"])
def test_a_file_that_is_no_safetensors_is_named(content, model, prepare):
    (model / "model.safetensors").write_bytes(content)
    assert str(model / "model.safetensors") in prepare(model).error


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.json", None, "holds no model"),
        ("config.json", "{", "not valid JSON"),
        ("config.json", "[]", "holds no JSON object"),
        ("config.json", "{}", "the architecture None is not supported"),
        ("config.json", '{"model_type": "mamba"}', "supported are llama, mistral, qwen2, qwen3, smollm3"),
        (
            "config.json",
            '{"model_type": "llama", "quantization_config": {"quant_method": "eetq"}}',
            "quantization 'eetq' is not supported, only gptq, awq, fp8, fbgemm_fp8 and compressed-tensors are",
        ),
        (
            "config.json",
            '{"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 8}}',
            "'bits' is 8; supported: 4",
        ),
        ("tokenizer.json", None, "missing; save the tokenizer in its fast form"),
        ("tokenizer.json", "nope", "not valid JSON"),
        ("tokenizer.json", "{}", "no tokenizer model"),
        ("model.safetensors", None, "has no model.safetensors"),
        ("model.safetensors.index.json", "{}", "has no weight_map"),
    ],
)
def test_what_is_missing_or_wrong_is_named(file, content, words, model, prepare):
    (model / file).unlink(missing_ok=True)
    if content is not None:
        (model / file).write_text(content)
    error = prepare(model).error
    assert words in error
    assert str(model) in error


def test_pytorch_weights_alone_must_be_converted(model, prepare):
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    assert "convert them to safetensors" in prepare(model).error


def test_a_directory_of_ggufs_says_which_file_to_name(model, prepare):
    (model / "model.safetensors").rename(model / "x.gguf")
    assert str(model / "x.gguf") in prepare(model).error


@pytest.mark.parametrize("name", ["", "no/such/model/here", "./nothing", "just a name", "org/na me"])
def test_a_name_that_is_nothing_says_what_it_could_be(name, prepare):
    assert "no such directory or .gguf file" in prepare(name).error


def test_another_kind_of_file_is_refused(tmp_path, prepare):
    (tmp_path / "notes.txt").write_text("x")
    assert "not a model" in prepare(tmp_path / "notes.txt").error


def test_the_architectures_that_are_let_through_are_those_that_the_runtime_computes():
    assert set(MODEL_TYPES) == set(ARCHITECTURES)
