"""Text Generation Inference's shard program: its commands do what ours do, or say in one line why not."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from tiny_models import TinyModel

from headrace_server import text_generation_server
from headrace_server.pb import shard_pb2 as pb
from headrace_server.pb.shard_pb2_grpc import ShardStub


@pytest.fixture
def model_dir(tiny_llama: TinyModel, tmp_path: Path) -> Path:
    """A whole model directory: with the tokenizer that a shard never reads."""
    directory = tmp_path / "model"
    directory.mkdir()
    for file in tiny_llama.directory.iterdir():
        (directory / file.name).symlink_to(file)
    (directory / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}, "merges": []}}')
    return directory


COMMAND = [sys.executable, "-m", "headrace_server.text_generation_server"]


def test_serve_listens_where_the_router_looks(model_dir: Path, tmp_path: Path) -> None:
    words = ["serve", str(model_dir), "--uds-path", str(tmp_path / "tgi"), "--dtype", "float32", "--no-sharded"]
    words += ["--kv-cache-dtype", "fp8_e5m2"]
    process = subprocess.Popen([*COMMAND, *words, "--json-output"], stderr=subprocess.PIPE, text=True)
    try:
        with grpc.insecure_channel(f"unix:{tmp_path / 'tgi-0'}") as channel:
            info = ShardStub(channel).Info(pb.InfoRequest(), wait_for_ready=True, timeout=60)
        assert (info.model_type, info.dtype) == ("llama", "float32")
        assert info.kv_bytes_per_token == 2 * 3 * 2 * (16 + 4), "quants and scales of int8, which a CPU takes for fp8"
        process.terminate()
        _, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, stderr


def test_download_weights_prints_the_models_directory(model_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = text_generation_server.main(["download-weights", str(model_dir), "--extension", ".safetensors"], {})
    captured = capsys.readouterr()
    assert (status, captured.out) == (0, f"{model_dir}\n")
    assert captured.err.startswith("warning: --extension has no effect: ") and captured.err.count("\n") == 1


def test_a_model_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert text_generation_server.main(["download-weights", str(tmp_path / "no.gguf")], {}) == 1
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("error: ") and captured.err.count("\n") == 1


def test_quantize_says_that_it_cannot(capsys: pytest.CaptureFixture[str]) -> None:
    assert text_generation_server.main(["quantize", "org/model", "out", "--bits", "4"], {}) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: quantize: ") and captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"WORLD_SIZE": "2", "RANK": "3"}, "--rank 3 is not below --world-size 2"),
        ({"CUDA_MEMORY_FRACTION": "1.5"}, "1.5"),
        ({"ROPE_FACTOR": "0.5"}, "0.5"),
    ],
    ids=["ranks", "memory", "positions"],
)
def test_variables_of_the_launcher_reach_the_shard(
    variables: dict[str, str], said: str, model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert text_generation_server.main(["serve", str(model_dir)], variables) == 1
    assert said in capsys.readouterr().err
