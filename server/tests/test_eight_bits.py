"""`--quantize int8` and `fp8` as a GPU computes them, on a CPU by the kernels' definitions."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from shard_world import World, load_on_torch, random_tokens, sampled_logits
from tiny_models import llama

from headrace_kernels.gpu import chip
from headrace_kernels.quantize_rows import QuantizedRows, quantize_rows
from headrace_server.quantization import eight_bits, method
from headrace_server.quantization.eight_bits import DTYPES, EightBits
from headrace_server.runner import Runner

NAMES = pytest.mark.parametrize("name", DTYPES)
PROMPT = random_tokens(12, seed=4)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("llama")
    return llama(directory, num_hidden_layers=2, initializer_range=0.1, attention_bias=True).directory


def logits(runner: Runner) -> np.ndarray:
    return sampled_logits(runner, PROMPT)


def load(directory: Path, chosen: EightBits) -> Runner:
    return load_on_torch(directory, method=chosen)


def rounded(plain: Path, directory: Path, dtype: torch.dtype) -> Path:
    """The same model with the weights that 8 bits stand for."""
    shutil.copytree(plain, directory)
    tensors = load_file(plain / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith("_proj.weight"):
            rows = quantize_rows(tensor, dtype)
            tensors[name] = rows.values.float() * rows.scales[:, None]
    save_file(tensors, directory / "model.safetensors")
    return directory


@NAMES
def test_with_rows_as_they_are_tokens_are_those_of_the_rounded_weights(name: str, plain: Path, tmp_path: Path) -> None:
    weights_alone = load(plain, EightBits(DTYPES[name], None))
    expected = World(load_on_torch(rounded(plain, tmp_path / name, DTYPES[name]))).generate({0: PROMPT}, 12)
    assert World(weights_alone).generate({0: PROMPT}, 12) == expected


@pytest.mark.parametrize(("name", "limit"), [("int8", 0.05), ("fp8", 0.15)])
def test_rounding_rows_moves_logits_little(name: str, limit: float, plain: Path, tmp_path: Path) -> None:
    """int8 rounds to 1 part in 254 of a row's largest element, float8 to 1 part in 16 of each."""
    exact = logits(load_on_torch(rounded(plain, tmp_path / name, DTYPES[name])))
    moved = np.abs(logits(load(plain, EightBits(DTYPES[name], DTYPES[name]))) - exact).mean() / np.abs(exact).mean()
    assert 1e-4 < moved < limit


@pytest.mark.parametrize(
    ("name", "capability", "rows"),
    [("int8", 80, torch.int8), ("fp8", 80, None), ("fp8", 89, torch.float8_e4m3fn), ("fp8", 90, torch.float8_e4m3fn)],
)
def test_rows_are_rounded_where_the_chip_multiplies_eight_bits(
    name: str, capability: int, rows: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chip, "capability", lambda: capability)
    assert method.quantization_method(None, name, torch.device("cuda")) == EightBits(DTYPES[name], rows)


@NAMES
def test_norms_and_gates_round_for_the_products_that_follow(
    name: str, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the four products of a layer only the one of attention's result rounds its rows itself."""
    rounded_alone: list[int] = []  # tokens of each

    def count(x: torch.Tensor, dtype: torch.dtype) -> QuantizedRows:
        rounded_alone.append(len(x))
        return quantize_rows(x, dtype)

    runner = load(plain, EightBits(DTYPES[name], DTYPES[name]))
    monkeypatch.setattr(eight_bits, "quantize_rows", count)
    logits(runner)
    assert rounded_alone.count(len(PROMPT)) == 2  # layers; Warmup had other steps
