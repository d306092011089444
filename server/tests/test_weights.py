"""A checkpoint that is not what config.json says is refused with one sentence."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from shard_world import World, load, random_tokens
from tiny_models import TinyModel

from headrace_server.errors import HeadraceError, WeightsError
from headrace_server.weights.float8 import FLOAT8

PROMPT = random_tokens(9, seed=1)


@pytest.fixture
def model_dir(tiny_llama: TinyModel, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(tiny_llama.directory, tmp_path / "model"))


def rewrite(model_dir: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(model_dir / "model.safetensors")
    change(tensors)
    save_file(tensors, model_dir / "model.safetensors", metadata={"format": "pt"})


def shard_checkpoint(model_dir: Path) -> None:
    """The same tensors over two files with an index."""
    tensors = load_file(model_dir / "model.safetensors")
    (model_dir / "model.safetensors").unlink()
    where = {name: f"part-{index % 2}.safetensors" for index, name in enumerate(sorted(tensors))}
    for file in set(where.values()):
        save_file({name: tensors[name] for name in tensors if where[name] == file}, model_dir / file)
    (model_dir / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def test_a_checkpoint_of_several_files_is_the_same_model(model_dir: Path, tiny_llama: TinyModel) -> None:
    shard_checkpoint(model_dir)
    assert World(load(model_dir)).generate({0: PROMPT}, 8) == {0: tiny_llama.greedy(PROMPT, 8)}


def test_other_weight_files_beside_the_single_one_are_not_read(model_dir: Path, tiny_llama: TinyModel) -> None:
    (model_dir / "model-copy.safetensors").write_bytes(b"no weights")
    assert World(load(model_dir)).generate({0: PROMPT}, 8) == {0: tiny_llama.greedy(PROMPT, 8)}


def test_a_missing_file_is_named(model_dir: Path) -> None:
    shard_checkpoint(model_dir)
    (model_dir / "part-1.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"part-1\.safetensors is missing, one of 2 files"):
        load(model_dir)


def test_a_directory_without_weights_is_refused(model_dir: Path) -> None:
    (model_dir / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"holds no model\*\.safetensors file"):
        load(model_dir)


@pytest.mark.parametrize("keep", [0.999, 0.5, 0.001], ids=["the last bytes", "half", "the header"])
def test_a_truncated_file_is_named(keep: float, model_dir: Path) -> None:
    file = model_dir / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(WeightsError, match=r"model\.safetensors is damaged or incomplete"):
        load(model_dir)


def test_an_unreadable_index_is_named(model_dir: Path) -> None:
    (model_dir / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    with pytest.raises(WeightsError, match=r"index\.json cannot be read"):
        load(model_dir)


def test_a_missing_tensor_is_named(model_dir: Path) -> None:
    rewrite(model_dir, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(
        WeightsError, match=r"up_proj\.weight' is in none of the files of .*; config.json and the weights do not"
    ):
        load(model_dir)


def test_a_tensor_of_the_wrong_shape_is_named_with_both_shapes(model_dir: Path) -> None:
    rewrite(model_dir, lambda tensors: tensors.update({"model.norm.weight": torch.zeros(3)}))
    with pytest.raises(WeightsError, match=r"norm\.weight' .* has shape \[3\], but config\.json makes it \[64\]"):
        load(model_dir)


def test_a_tensor_that_nobody_takes_is_named(model_dir: Path) -> None:
    rewrite(model_dir, lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)}))
    with pytest.raises(WeightsError, match=r"1 tensors .* have no place in the model .*q_proj\.bias"):
        load(model_dir)


def test_quantized_weights_without_their_method_are_refused(model_dir: Path) -> None:
    rewrite(model_dir, lambda tensors: tensors.update({"model.norm.weight": torch.zeros(64, dtype=torch.int8)}))
    with pytest.raises(WeightsError, match=r"is I8; weights must be floating-point"):
        load(model_dir)
    config = json.loads((model_dir / "config.json").read_text())
    (model_dir / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "eetq"}}))
    with pytest.raises(HeadraceError, match="quantization 'eetq' is not supported"):
        load(model_dir)


def test_computed_buffers_and_tied_copies_are_ignored(model_dir: Path, tiny_llama: TinyModel) -> None:
    rewrite(model_dir, lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8)}))
    assert World(load(model_dir)).generate({0: PROMPT}, 4) == {0: tiny_llama.greedy(PROMPT, 4)}
    config = json.loads((model_dir / "config.json").read_text())
    (model_dir / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": True}))
    load(model_dir)


def test_the_files_may_go_once_the_model_is_loaded(model_dir: Path, tiny_llama: TinyModel) -> None:
    runner = load(model_dir)
    file = model_dir / "model.safetensors"
    file.write_bytes(bytes(file.stat().st_size))  # in place: a mapping would see the zeros
    assert World(runner).generate({0: PROMPT}, 4) == {0: tiny_llama.greedy(PROMPT, 4)}


def test_each_float8_is_the_number_that_torch_takes_it_for() -> None:
    bits = torch.arange(256).to(torch.uint8)
    np.testing.assert_array_equal(FLOAT8, bits.view(torch.float8_e4m3fn).float().numpy())
