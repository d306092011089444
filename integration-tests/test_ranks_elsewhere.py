"""Ranks that somebody else starts: by torchrun or by Ray, on this machine. A router attaches to them."""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from harness.reference import Reference
from harness.server import PYTHON, ROOT, Server, free_port, wait_for
from test_death import ask_in_background

PROMPT = "The capital of France is"
RANK = ("--device", "cpu", "--dtype", "float32", "--num-threads", "1")
ROUTER = ("--max-total-tokens", "256", "--max-batch-size", "4", "--max-batch-prefill-tokens", "16")


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A program that starts ranks. It is told to end, and all that it started is gone then."""
    command = [str(PYTHON), *words]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            family = descendants(process.pid)
            process.terminate()
            process.wait(60)
    wait_for(lambda: not any(map(is_alive, family)), f"all below {process.pid} to end")


def descendants(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def rank(number: int, pid: int) -> psutil.Process:
    """The process of this rank among those below."""
    words = ("serve", f"--rank {number} --world-size 2")
    for process in descendants(pid):
        with suppress(psutil.NoSuchProcess):
            if all(word in " ".join(process.cmdline()) for word in words):
                return process
    raise AssertionError(f"no rank {number} below {pid}")


def attach(launch: Callable[..., Server], model_dir: Path, shards: str) -> Server:
    return launch(*ROUTER, "--model-id", str(model_dir), "--shards", shards, command="router")


def test_torchruns_ranks_serve_one_router_after_the_other(
    launch: Callable[..., Server], model_dir: Path, reference: Reference
) -> None:
    """The first router is killed in the middle of an answer, when ranks may have heard of different steps."""
    port, meeting = free_port(row=2), free_port()
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1")
    ours = ("-m", "headrace_server.torchrun", "--model-dir", str(model_dir), "--listen", f"127.0.0.1:{port}")
    with running(*torchrun, "--master-port", str(meeting), *ours, *RANK):
        shards = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
        first = attach(launch, model_dir, shards)
        thread, _ = ask_in_background(first, 200)
        first.process.send_signal(signal.SIGKILL)
        thread.join()
        second = attach(launch, model_dir, shards)
        assert second.token_ids(PROMPT, 4) == reference.greedy(PROMPT, 4)
        second.stop()


def test_a_second_router_is_told_that_the_ranks_serve_another_one(
    launch: Callable[..., Server], model_dir: Path, reference: Reference
) -> None:
    port = free_port()
    words = ("-m", "headrace_server", "serve", "--model-dir", str(model_dir), "--listen", f"127.0.0.1:{port}")
    with running(*words, *RANK):
        first = attach(launch, model_dir, f"127.0.0.1:{port}")
        second = Server(*ROUTER, "--model-id", str(model_dir), "--shards", f"127.0.0.1:{port}", command="router")
        assert second.process.wait(30) == 1
        assert "error: rank 0: it serves another router since " in second.log()
        second.stop()
        assert first.token_ids(PROMPT, 4) == reference.greedy(PROMPT, 4)


def test_a_router_with_another_models_tokenizer_is_refused(
    launch: Callable[..., Server], model_dir: Path, reference: Reference, tmp_path: Path
) -> None:
    """config.json says the same of both, but token ids would mean other texts."""
    other = tmp_path / "other"
    shutil.copytree(model_dir, other, ignore=shutil.ignore_patterns("*.safetensors", "*.gguf"))
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["the"], vocabulary["of"] = vocabulary["of"], vocabulary["the"]
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    port = free_port()
    words = ("-m", "headrace_server", "serve", "--model-dir", str(model_dir), "--listen", f"127.0.0.1:{port}")
    with running(*words, *RANK):
        refused = Server(*ROUTER, "--model-id", str(other), "--shards", f"127.0.0.1:{port}", command="router")
        assert refused.process.wait(60) == 2
        assert f"error: --model-id {other} is not the model that the shards have loaded" in refused.log()
        assert "the SHA-256 of tokenizer.json is " in refused.log()
        refused.stop()
        copy = tmp_path / "copy"
        shutil.copytree(model_dir, copy, ignore=shutil.ignore_patterns("*.safetensors", "*.gguf"))
        assert attach(launch, copy, f"127.0.0.1:{port}").token_ids(PROMPT, 4) == reference.greedy(PROMPT, 4)


def test_an_address_where_nobody_is_is_named_until_it_is_known_that_nobody_will_come(model_dir: Path) -> None:
    port, nobody = free_port(), free_port()
    shards = f"127.0.0.1:{port},127.0.0.1:{nobody}"
    router = Server(*ROUTER, "--model-id", str(model_dir), "--shards", shards, command="router")
    missing = f"rank 1 at 127.0.0.1:{nobody} ("

    def named() -> bool:
        with suppress(OSError):
            return missing in router.get("/readyz")[1]
        return False

    wait_for(named, "/readyz to say who is missing")
    assert f"waiting for rank 0 at 127.0.0.1:{port} (" in router.log()
    words = ("-m", "headrace_server", "serve", "--model-dir", str(model_dir), "--listen", f"127.0.0.1:{port}")
    with running(*words, *RANK):
        assert router.process.wait(60) == 1
    sentence = (
        f"127.0.0.1:{port} is rank 0 of 1 and 2 addresses are given; name those of the 1 that were started together"
    )
    assert sentence in router.log()
    router.stop()


def test_a_step_too_large_for_one_ranks_memory_is_computed_again_in_smaller_ones(
    launch: Callable[..., Server], model_dir: Path, reference: Reference
) -> None:
    """On rank 1 prompts of 16 tokens fit, but not with rows that decode beside them. Rank 0 and the router live on."""
    first, second, meeting = free_port(), free_port(), free_port()
    short = str(ROOT / "integration-tests/harness/short_shard.py")
    place = (
        "--world-size",
        "2",
        "--local-world-size",
        "2",
        "--master-addr",
        "127.0.0.1",
        "--master-port",
        f"{meeting}",
    )
    serve = ("serve", "--model-dir", str(model_dir), *RANK, *place)
    prompts = [f"{number}. The tallest mountains of each continent, and who climbed them:" for number in range(4)]
    with (
        running("-m", "headrace_server", *serve, "--listen", f"127.0.0.1:{first}", "--rank", "0"),
        running(short, "16", *serve, "--listen", f"127.0.0.1:{second}", "--rank", "1"),
    ):
        server = attach(launch, model_dir, f"127.0.0.1:{first},127.0.0.1:{second}")
        with ThreadPoolExecutor(len(prompts)) as pool:
            answers = list(pool.map(lambda prompt: server.token_ids(prompt, 12), prompts))
        assert answers == [reference.greedy(prompt, 12) for prompt in prompts]
        assert "rank 1: out of memory in a step of" in server.log()
        assert "ran out of memory; its requests are computed again, in steps of at most" in server.log()
        server.stop()


def test_rays_ranks_serve_a_router_and_end_with_one_of_them(
    launch: Callable[..., Server], model_dir: Path, reference: Reference
) -> None:
    pytest.importorskip("ray")
    words = ("-m", "headrace_server.ray", "--num-shard", "2", "--model-dir", str(model_dir), *RANK)
    with ExitStack() as life:
        for _ in range(3):  # Ray gives up its own start after 30 s, which a busy machine may take
            placed = life.enter_context(running(*words))
            assert placed.stdout is not None
            if line := placed.stdout.readline():
                break
        assert line.startswith(f"headrace router --model-id {model_dir} --shards 127.0.0.1:"), line
        server = attach(launch, model_dir, line.split("--shards ")[1].strip())
        assert server.token_ids(PROMPT, 4) == reference.greedy(PROMPT, 4)
        rank(1, placed.pid).kill()
        assert placed.wait(60) == 1
        assert server.process.wait(30) == 1
        assert "rank 1" in server.log()
