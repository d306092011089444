"""The process as a launcher sees it: its socket, its one-line errors, and that it never outlives its parent."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_world import new_row, packed, tables
from tiny_models import TinyModel, llama

from headrace_server.pb import shard_pb2 as pb
from headrace_server.pb.shard_pb2_grpc import ShardStub

SERVE = [sys.executable, "-m", "headrace_server", "serve", "--num-threads", "1", "--dtype", "float32"]


def start(model_dir: Path, socket: Path, *flags: str) -> subprocess.Popen[str]:
    command = [*SERVE, "--model-dir", str(model_dir), "--uds-path", str(socket), *flags]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    """A process to be the launcher. Ended here if the test does not."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


@pytest.fixture(scope="module")
def slow_llama(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """Large enough that 20,000 prompt tokens take a core about ten seconds."""
    return llama(tmp_path_factory.mktemp("slow"), hidden_size=512, intermediate_size=2048, num_hidden_layers=4)


@pytest.fixture
def shard(
    slow_llama: TinyModel, tmp_path: Path, parent: subprocess.Popen[bytes]
) -> Iterator[tuple[subprocess.Popen[str], grpc.Channel]]:
    """A shard process that has loaded its model, supervised by `parent`."""
    process = start(slow_llama.directory, tmp_path / "s.sock", "--parent-pid", str(parent.pid), "--json-output")
    with grpc.insecure_channel(f"unix:{tmp_path / 's.sock'}") as channel:
        ShardStub(channel).Info(pb.InfoRequest(), wait_for_ready=True, timeout=60)
        yield process, channel
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


def begin_a_long_step(channel: grpc.Channel) -> grpc.Call:
    """Returns when the model thread is in a step of many seconds. The session lives as long as what is returned."""
    stub = ShardStub(channel)
    rows = list(range(80))
    stub.Warmup(pb.WarmupRequest(max_batch_size=80, max_batch_prefill_tokens=32, num_blocks=80 * 8), timeout=60)
    step = pb.PrefillStep(
        sequence=1,
        step=1,
        new_rows=[new_row(row, [1] * 250) for row in rows],
        chunk_rows=packed(*rows),
        chunk_tokens=packed(*[250] * 80),
        tables=tables(*([row * 8 + block for block in range(8)] for row in rows)),
    )
    answers = stub.Prefill(iter([step]), metadata=(("headrace-session", "1"),))
    while stub.Health(pb.HealthRequest(), timeout=10).inbox_depth == 0:
        assert answers.is_active(), answers.details()
    return answers


SOON = 5.0  # seconds; a step of `begin_a_long_step` takes longer, and so does nothing that ends a process


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in a step"])
def test_the_shard_ends_when_its_parent_is_killed(
    busy: bool, shard: tuple[subprocess.Popen[str], grpc.Channel], parent: subprocess.Popen[bytes]
) -> None:
    process, channel = shard
    step = begin_a_long_step(channel) if busy else None
    parent.kill()
    parent.wait()
    process.wait(SOON)
    assert step is None or step.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(("owner", "kept"), [("launcher", False), ("user", True)])
def test_what_was_made_for_the_socket_goes_when_the_launcher_is_killed(
    owner: str, kept: bool, tiny_llama: TinyModel, tmp_path: Path, parent: subprocess.Popen[bytes]
) -> None:
    home = tmp_path / "headrace-home"
    home.mkdir()
    process = start(tiny_llama.directory, home / "s.sock", "--parent-pid", str(parent.pid), "--uds-owner", owner)
    with grpc.insecure_channel(f"unix:{home / 's.sock'}") as channel:
        ShardStub(channel).Info(pb.InfoRequest(), wait_for_ready=True, timeout=60)
        parent.kill()
        parent.wait()
        process.communicate(timeout=60)
    assert not (home / "s.sock").exists()
    assert home.exists() == kept


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in a step"])
def test_streams_that_are_open_at_sigterm_are_told_why_and_leave_no_traceback(
    busy: bool, shard: tuple[subprocess.Popen[str], grpc.Channel]
) -> None:
    process, channel = shard
    if busy:
        answers = begin_a_long_step(channel)
    else:
        ShardStub(channel).Warmup(pb.WarmupRequest(max_batch_size=1, max_batch_prefill_tokens=32), timeout=60)
        answers = ShardStub(channel).Prefill(held_open(), metadata=(("headrace-session", "1"),))
        answers.initial_metadata()
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    assert answers.code() is grpc.StatusCode.ABORTED
    assert answers.details().endswith("the shard ends")
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


def held_open() -> Iterator[pb.PrefillStep]:
    """A stream that the client does not close."""
    threading.Event().wait(60)
    yield from ()


def test_a_call_that_waits_for_the_model_at_sigterm_is_told_why_and_leaves_no_traceback(
    slow_llama: TinyModel, tmp_path: Path
) -> None:
    process = start(slow_llama.directory, tmp_path / "s.sock")
    with grpc.insecure_channel(f"unix:{tmp_path / 's.sock'}") as channel:
        waiting = ShardStub(channel).Info.future(pb.InfoRequest(), wait_for_ready=True, timeout=60)
        ShardStub(channel).Health(pb.HealthRequest(), wait_for_ready=True, timeout=60)  # it listens: torch is imported
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert waiting.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK)
    assert "Traceback" not in errors


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in a step"])
def test_the_shard_ends_on_sigterm_and_takes_its_socket_along(
    busy: bool, shard: tuple[subprocess.Popen[str], grpc.Channel], tmp_path: Path
) -> None:
    process, channel = shard
    step = begin_a_long_step(channel) if busy else None
    process.send_signal(signal.SIGTERM)
    process.wait(SOON)
    assert step is None or step.code() is not grpc.StatusCode.OK
    assert process.returncode == 0
    assert not (tmp_path / "s.sock").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_shard_that_is_told_to_end_before_it_listens_ends_without_a_word(number: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    process = start(tmp_path, tmp_path / "s.sock")
    with (tmp_path / "config.json").open("w"):  # opens when the shard does
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_logs_are_json_lines_when_asked(shard: tuple[subprocess.Popen[str], grpc.Channel]) -> None:
    process, _ = shard
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    assert process.stderr is not None
    messages = [json.loads(line)["message"] for line in process.stderr]
    assert any("loaded llama" in message for message in messages)


SIZES = {
    "a layer more": {"num_hidden_layers": 4},
    "a small vocabulary": {"vocab_size": 50},
    "more than any memory": {"hidden_size": 10**9, "head_dim": 16},
    "more than any model": {"hidden_size": 10**12},
}


def damaged(model: TinyModel, directory: Path, what: str) -> Path:
    copy = Path(shutil.copytree(model.directory, directory / "model"))
    config = json.loads((copy / "config.json").read_text())
    weights = copy / "model.safetensors"
    if what == "architecture":
        (copy / "config.json").write_text(json.dumps({**config, "model_type": "gpt2"}))
    elif what == "shape":
        (copy / "config.json").write_text(json.dumps({**config, "intermediate_size": 24}))
    elif what in SIZES:
        (copy / "config.json").write_text(json.dumps({**config, **SIZES[what]}))
    elif what == "truncated":
        os.truncate(weights, weights.stat().st_size - 100)
    elif what == "no weights":
        weights.unlink()
    elif what == "a missing file":
        index = {"weight_map": {"a": "model.safetensors", "b": "gone.safetensors"}}
        (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    return copy


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("architecture", "architecture 'gpt2'"),
        ("shape", "has shape [112, 64], but config.json makes it [24, 64] by 'intermediate_size' 24; config.json and"),
        ("a layer more", "tensor 'model.layers.3.input_layernorm.weight' is in none of the files of"),
        ("a small vocabulary", "by 'vocab_size' 50; config.json and the weights do not belong together"),
        ("more than any memory", "but config.json makes it [97, 1000000000] by 'hidden_size' 1000000000; config.json"),
        ("more than any model", "config.json: 'hidden_size' is 1000000000000, more than any model has"),
        ("truncated", "is damaged or incomplete"),
        ("no weights", "holds no model*.safetensors file"),
        ("a missing file", "gone.safetensors is missing"),
    ],
)
def test_a_model_that_cannot_be_served_is_one_line_and_an_exit_code(
    what: str, message: str, tiny_llama: TinyModel, tmp_path: Path
) -> None:
    process = start(damaged(tiny_llama, tmp_path, what), tmp_path / "s.sock")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    last = errors.splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
    assert "Traceback" not in errors
    assert errors.count(message) == 1


@pytest.mark.parametrize(
    ("what", "flags", "message"),
    [
        ("a layer more", [], "tensor 'model.layers.3."),
        ("nothing", ["--block-size", "7"], "--block-size: block_size 7"),
        ("nothing", ["--device", "cuda"], "--device cuda: torch sees no GPU"),
    ],
)
def test_whoever_asks_for_info_reads_the_sentence_that_the_shard_ends_with(
    what: str, flags: list[str], message: str, tiny_llama: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # a machine with a GPU has none here
    process = start(damaged(tiny_llama, tmp_path, what), tmp_path / "s.sock", *flags)
    with grpc.insecure_channel(f"unix:{tmp_path / 's.sock'}") as channel:
        with pytest.raises(grpc.RpcError) as refused:
            ShardStub(channel).Info(pb.InfoRequest(), wait_for_ready=True, timeout=60)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert refused.value.details().startswith(message)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.splitlines()[-1] == f"error: {refused.value.details()}"
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rank", "1"], "--rank 1 is not below --world-size 1"),
        (["--world-size", "2"], "--world-size 2 needs --master-port"),
        (["--block-size", "7"], "--block-size: block_size 7"),
        (["--num-threads", "0"], "--num-threads 0 must be at least 1"),
    ],
    ids=["rank", "world size", "block size", "threads"],
)
def test_a_flag_that_cannot_work_is_one_line(
    flags: list[str], message: str, tiny_llama: TinyModel, tmp_path: Path
) -> None:
    process = start(tiny_llama.directory, tmp_path / "s.sock", *flags)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert message in errors.splitlines()[-1]


def test_a_taken_port_is_one_line(tiny_llama: TinyModel) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [*SERVE, "--model-dir", str(tiny_llama.directory), "--listen", address]
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert f"error: cannot listen on {address}" in result.stderr


def test_an_unknown_command_shows_how_it_is_used() -> None:
    command = [sys.executable, "-m", "headrace_server", "dance"]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert result.returncode == 2
    assert "usage: python -m headrace_server serve" in result.stderr
