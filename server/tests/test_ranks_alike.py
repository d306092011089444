"""Ranks that would add up what does not belong together are told so when they meet."""

import shutil
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tiny_models import TinyModel
from torch import distributed as dist

from headrace_server.distributed.alike import Setting, check_alike
from headrace_server.errors import ConfigError
from headrace_server.flags import parse_serve
from headrace_server.load import settings_of_ranks
from headrace_server.models.registry import read_config


def settings(directory: Path, *words: str, dtype: str = "float32", device: str = "cpu") -> dict[str, Setting]:
    flags = parse_serve(["--model-dir", str(directory), "--uds-path", "unused", *words])
    return settings_of_ranks(flags, read_config(directory, flags.stretch), dtype, device)


def told(*ranks: dict[str, Setting]) -> list[str | None]:
    """What each rank is told when these meet."""
    store = dist.HashStore()

    def meet(rank: int) -> str | None:
        try:
            check_alike(store, rank, len(ranks), ranks[rank])
        except ConfigError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(meet, range(len(ranks))))


@pytest.fixture
def model(tiny_llama: TinyModel) -> Path:
    return tiny_llama.directory


def test_ranks_that_are_alike_are_told_nothing(model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "elsewhere"))
    assert (
        told(settings(model), settings(copy, "--num-threads", "3"), settings(model, "--kernel-cache", "/k"))
        == [None] * 3
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--quantize", "int8"], "--quantize is not given on rank 0 and int8 on rank 2"),
        (["--kv-cache-dtype", "int8"], "--kv-cache-dtype is not given on rank 0 and int8 on rank 2"),
        (["--block-size", "64"], "--block-size is 32 on rank 0 and 64 on rank 2"),
        (["--batch-invariant"], "--batch-invariant is not given on rank 0 and given on rank 2"),
        (["--cuda-graphs", "4,1"], "--cuda-graphs is not given on rank 0 and 4,1 on rank 2"),
        (["--cuda-graphs", "0"], "--cuda-graphs is not given on rank 0 and 0 on rank 2"),
        (["--rope-scaling", "dynamic"], "--rope-scaling is not given on rank 0 and dynamic on rank 2"),
        (["--rope-factor", "2"], "--rope-scaling is not given on rank 0 and linear on rank 2"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_all_are_told_the_flag_both_values_and_both_ranks(words: list[str], said: str, model: Path) -> None:
    expected = f"{said}; all ranks of a model need the same"
    assert told(settings(model), settings(model), settings(model, *words)) == [expected] * 3


def test_what_a_rank_chose_for_itself_must_be_the_same_too(model: Path) -> None:
    types = told(settings(model), settings(model, dtype="bfloat16"))
    assert types == ["--dtype is float32 on rank 0 and bfloat16 on rank 1; all ranks of a model need the same"] * 2
    devices = told(settings(model, device="cuda"), settings(model))
    assert devices == ["--device is cuda on rank 0 and cpu on rank 1; all ranks of a model need the same"] * 2


def test_a_longer_factor_of_the_same_stretch_is_another_one(model: Path) -> None:
    two, three = (settings(model, "--rope-factor", factor) for factor in ("2", "3"))
    assert told(two, three)[0] == "--rope-factor is 2.0 on rank 0 and 3.0 on rank 1; all ranks of a model need the same"


@pytest.mark.parametrize("changed", ["a weight", "config.json"])
def test_another_model_of_the_same_shape_is_another_one(changed: str, model: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(model, tmp_path / "other"))
    if changed == "a weight":
        tensors = load_file(other / "model.safetensors")
        tensors["model.layers.1.mlp.up_proj.weight"][0, 0] += 1
        save_file(tensors, other / "model.safetensors")
    else:
        config = (other / "config.json").read_text()
        assert '"rms_norm_eps": 1e-06' in config
        (other / "config.json").write_text(config.replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'))
    for answer in told(settings(model), settings(other)):
        assert answer is not None
        assert answer.startswith(f"--model-dir is {model} (contents ")
        assert f") on rank 0 and {other} (contents " in answer
        assert answer.endswith(") on rank 1; all ranks of a model need the same")


def test_ranks_that_count_otherwise_are_told_before_all_have_come(model: Path) -> None:
    store = dist.HashStore()
    store.set("settings of rank 0", '{"--world-size": ["3", "3"]}')
    with pytest.raises(ConfigError, match="--world-size is 3 on rank 0 and 2 on rank 1; all ranks of a model need"):
        check_alike(store, 1, 2, settings(model))


def test_processes_that_differ_end_with_the_same_sentence(model: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve = [sys.executable, "-m", "headrace_server", "serve", "--model-dir", str(model), "--device", "cpu"]
    serve += ["--num-threads", "1", "--world-size", "2", "--master-port", str(port)]
    ranks = [
        subprocess.Popen(
            [*serve, "--rank", str(rank), "--uds-path", str(tmp_path / f"{rank}.sock"), "--dtype", dtype],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, dtype in enumerate(("float32", "bfloat16"))
    ]
    said = "error: --dtype is float32 on rank 0 and bfloat16 on rank 1; all ranks of a model need the same"
    for rank in ranks:
        errors = rank.communicate(timeout=60)[1]
        assert (rank.returncode, errors.splitlines()[-1]) == (1, said)
