"""Hub ids: downloads, the hub's own cache, and one clear line for everything that goes wrong."""

import json
import socket
import struct
import threading
import time

import pytest
from fake_hub import COMMIT, REPO, FakeHub, serve


def safetensors(size=64):
    header = json.dumps({"w": {"dtype": "BF16", "shape": [size // 2], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


FILES = {
    "README.md": b"# hello",
    "config.json": b'{"model_type": "qwen3"}',
    "tokenizer.json": b'{"model": {"type": "BPE"}}',
    "tokenizer_config.json": b"{}",
    "generation_config.json": b"{}",
    "chat_template.jinja": b"hi",
    "model.safetensors": safetensors(),
    "consolidated.safetensors": safetensors(32),
    "pytorch_model.bin": b"old",
    "onnx/model.onnx": b"other",
}


def without(*names, **more):
    return {**{name: content for name, content in FILES.items() if name not in names}, **more}


@pytest.fixture
def run(prepare_process, tmp_path):
    """Runs the command against the hub at `url`."""

    def run(url, *flags, model=REPO, **environ):
        local = {"HF_ENDPOINT": url, "NO_PROXY": "127.0.0.1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_OFFLINE": ""}
        places = {"HF_HOME": str(tmp_path / "hf"), "HOME": str(tmp_path), "HF_TOKEN": ""}
        return prepare_process(
            "--model-id", model, "--hub-cache", tmp_path / "hub", *flags, **{**local, **places, **environ}
        )

    return run


def refused(run, **hub):
    with serve(FakeHub(**{"files": FILES, **hub})) as fake:
        error = run(fake.url).error
    assert REPO in error
    return error


def test_a_model_is_downloaded_with_what_belongs_to_it_and_no_more(run, tmp_path):
    with serve(FakeHub(FILES)) as hub:
        outcome = run(hub.url)
    assert outcome.result["revision"] == COMMIT
    assert outcome.result["model_id"] == REPO
    assert outcome.directory.is_relative_to(tmp_path / "hub")
    assert sorted(file.name for file in outcome.directory.iterdir()) == [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert (outcome.directory / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_shards_come_with_their_index(run):
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = json.dumps({"weight_map": {"a": names[0], "b": names[1]}}).encode()
    shards = {name: safetensors() for name in names}
    shards["model-fp16.safetensors"] = safetensors()
    with serve(FakeHub(without("model.safetensors", **{"model.safetensors.index.json": index}, **shards))) as hub:
        outcome = run(hub.url)
        assert not [request for request in hub.asked if "fp16" in request]
    assert {file.name for file in outcome.directory.iterdir()} >= {"model.safetensors.index.json", *names}


def test_a_second_run_downloads_nothing(run):
    with serve(FakeHub(FILES)) as hub:
        first = run(hub.url)
        hub.asked.clear()
        assert run(hub.url).result == first.result
        assert not [request for request in hub.asked if "/resolve/" in request]


def test_without_the_hub_its_cache_serves(run):
    with serve(FakeHub(FILES)) as hub:
        first = run(hub.url)
    later = run(hub.url)
    assert later.result == first.result
    assert "warning: " in later.err
    assert "can't be reached" in later.err
    offline = run(hub.url, HF_HUB_OFFLINE="1")
    assert offline.result == first.result


def test_a_copy_that_lacks_its_weights_does_not_serve(run):
    with serve(FakeHub(FILES)) as hub:
        first = run(hub.url)
    (first.directory / "model.safetensors").unlink()
    assert "can't be reached" in run(hub.url).error


def test_a_revision_is_passed_on(run):
    with serve(FakeHub(FILES)) as hub:
        assert run(hub.url, "--revision", COMMIT).result["revision"] == COMMIT
        error = run(hub.url, "--revision", "no-such-branch").error
    assert "no revision 'no-such-branch'" in error
    assert "--revision" in error


def test_a_name_the_hub_does_not_know(run):
    with serve(FakeHub(FILES)) as hub:
        error = run(hub.url, model="org/tyny").error
    assert "org/tyny: the hub has no such model" in error
    assert "spelling" in error
    assert "HF_TOKEN" in error


def test_a_gated_model_says_where_to_ask_for_access(run):
    error = refused(run, refusal=(403, "GatedRepo"))
    assert "is gated" in error
    assert f"/{REPO} and set HF_TOKEN" in error


def test_a_refused_token_is_said(run):
    error = refused(run, refusal=(401, ""))
    assert "HF_TOKEN" in error


def test_a_hub_in_trouble_is_named_with_its_status(run):
    assert "answered with status 500" in refused(run, refusal=(500, ""))


def test_a_hub_that_can_not_be_reached_is_one_quick_line(run):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    error = run(url).error
    assert f"the hub at {url} can't be reached" in error
    assert "local directory" in error


def test_a_hub_that_never_answers_is_given_up_after_seconds(run):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started = time.monotonic()
        error = run(f"http://127.0.0.1:{silent.getsockname()[1]}").error
        assert time.monotonic() - started < 30
    assert "can't be reached" in error


def test_offline_without_a_copy_says_so(run):
    with serve(FakeHub(FILES)) as hub:
        error = run(hub.url, HF_HUB_OFFLINE="1").error
        assert hub.asked == []
    assert "HF_HUB_OFFLINE is set" in error


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (without("model.safetensors", "consolidated.safetensors"), "PyTorch .bin weights only"),
        ({"config.json": b"{}", "tiny.Q4_K_M.gguf": b"GGUF"}, "GGUF files only; download one (such as tiny.Q4_K_M"),
        ({"README.md": b""}, "no model*.safetensors"),
        (without("tokenizer.json"), "no tokenizer.json"),
        (without("config.json"), "no config.json"),
    ],
    ids=["bin", "gguf", "nothing", "no tokenizer", "no config"],
)
def test_a_repository_that_can_not_be_served_is_refused_before_downloading(files, words, run):
    with serve(FakeHub(files)) as hub:
        error = run(hub.url).error
        assert not [request for request in hub.asked if request.startswith("GET") and "/resolve/" in request]
    assert words in error


def test_an_unknown_architecture_is_refused_before_its_weights_come(run):
    with serve(FakeHub({**FILES, "config.json": b'{"model_type": "mamba"}'})) as hub:
        error = run(hub.url).error
        assert not [request for request in hub.asked if "model.safetensors" in request]
    assert "'mamba' is not supported" in error


def test_the_deadline_holds_for_calls_that_know_none():
    from headrace_server.prepare.hub import _within

    never = threading.Event()
    with pytest.raises(TimeoutError, match="no answer"):
        _within(0.01, never.wait)
    never.set()
    assert _within(60.0, lambda: "answer") == "answer"
    with pytest.raises(ZeroDivisionError):
        _within(60.0, lambda: 1 / 0)


def test_a_name_without_an_organisation_is_a_hub_id_too(run):
    with serve(FakeHub(FILES)) as hub:
        error = run(hub.url, model="gpt2").error  # the pretend hub has another one
    assert "gpt2" in error
    assert "is no hub id" not in error
