"""Several processes hold one model: the same tokens as one, and none of them lives on alone."""

import signal
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import psutil
import pytest

from harness.reference import Reference
from harness.server import PYTHON, ROOT, Server, wait_for
from test_death import PATIENCE, ask_in_background, nothing_left

PROMPT = "Europe's longest rivers, which take several chunks of a prompt, are the Volga, the Danube and the"
TOKENS = 5
# Small steps: that ranks agree is what is tested, and up to four of them share the cores.
SMALL = ("--max-total-tokens", "256", "--max-batch-size", "4", "--max-batch-prefill-tokens", "16")
FLAGS = ("--dtype", "float32", "--device", "cpu", *SMALL)


@pytest.mark.parametrize("count", [2, 3, 4], ids=["2 uneven", "3 even", "4 of which one has no attention"])
def test_ranks_give_the_tokens_of_one(count: int, launch: Callable[..., Server], reference: Reference) -> None:
    """9 query heads and 3 KV heads. With 2 ranks the request is preempted on its way."""
    preempted = ("--debug-preempt-once-seed", "7") if count == 2 else ()
    server = launch(*FLAGS, "--num-shard", str(count), *preempted)
    assert server.token_ids(PROMPT, TOKENS) == reference.greedy(PROMPT, TOKENS)
    loaded = {rank for rank in range(count) if f"[rank {rank}] loaded llama" in server.log()}
    assert loaded == set(range(count))
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    nothing_left(server)


def test_ranks_take_the_blocks_of_a_gguf_as_they_are(launch: Callable[..., Server]) -> None:
    """And keep their KV in 8 bits. They add up in another order than one rank, and rows are rounded to 8 bits after
    that, so what is the least bit smaller can be rounded down: log-probabilities differ by as much as 8 bits cost, 0.1
    on average, and of two tokens alike the other one may be chosen."""
    small = (*FLAGS, "--quantize", "int4", "--kv-cache-dtype", "int8")
    alone = launch(*small)
    expected = prompt_logprobs(alone)
    alone.stop()
    server = launch(*small, "--num-shard", "3")
    shifts = [abs(ours - theirs) for ours, theirs in zip(prompt_logprobs(server), expected, strict=True)]
    assert mean(shifts) < 0.2, shifts
    for rank in range(3):
        assert f"[rank {rank}] weights of linear layers: 210 tensors as their blocks of Q4_1" in server.log()


def prompt_logprobs(server: Server) -> list[float]:
    answer = server.generate(PROMPT, max_new_tokens=1, decoder_input_details=True)
    return [token["logprob"] for token in answer["details"]["prefill"][1:]]


def test_a_rank_that_is_killed_is_named_and_the_others_are_gone_within_5_seconds(launch: Callable[..., Server]) -> None:
    server = launch(*FLAGS, "--num-shard", "2")
    (victim,) = (process for process in server.family if "--rank 1 " in " ".join(process.cmdline()))
    thread, answers = ask_in_background(server, 200)
    victim.kill()
    nothing_left(server, limit=5)
    thread.join(30)
    status, answer = answers[0]
    assert status == 424
    assert answer["error"].startswith("Request failed during generation: the shard died: rank 1 is gone; the request ")
    assert "Traceback" not in server.log()
    assert f"rank 1 (pid {victim.pid}) died: killed by signal 9" in server.log()


def test_a_rank_that_hangs_is_named_and_all_are_gone_within_5_seconds(launch: Callable[..., Server]) -> None:
    """Rank 0 has not answered either: it waits for the one that hangs."""
    server = launch(*FLAGS, "--num-shard", "2", "--step-timeout", "1")
    (victim,) = (process for process in server.family if "--rank 1 " in " ".join(process.cmdline()))
    thread, answers = ask_in_background(server, 200)
    victim.suspend()
    thread.join(30)
    nothing_left(server, limit=5)
    hung = "rank 1 did not answer a step within 1s (--step-timeout), nor whether it is alive"
    status, answer = answers[0]
    assert status == 424
    assert hung in answer["error"]
    assert f"error: the engine stopped: the shard died: {hung}" in server.log()


POOL_TOKENS = 65_536


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_without_memory_for_its_pool_is_named_and_nothing_waits_for_it(ranks: int, tmp_path: Path) -> None:
    """When the last rank has loaded its part, the system gives it 256 MiB more, and refuses the next tensor."""
    python = tmp_path / "python"
    poor = f'exec "{PYTHON}" "{ROOT}/integration-tests/harness/poor_shard.py" 256 "$@"'
    whose = f'*" serve "*"--rank {ranks - 1} "*'
    python.write_text(f'#!/bin/sh\ncase "$*" in {whose}) shift 2; {poor};; esac\nexec "{PYTHON}" "$@"\n')
    python.chmod(0o755)
    pool = ("--max-batch-total-tokens", str(POOL_TOKENS), "--python", str(python))
    server = Server(*FLAGS, *pool, "--num-shard", str(ranks))
    try:
        wait_for(lambda: server.log().count("; loading the model") == ranks, "all ranks to load the model")
        server.family = psutil.Process(server.process.pid).children(recursive=True)
        assert server.process.wait(PATIENCE) == 1
        nothing_left(server, limit=5)
        heads = 3 if ranks == 1 else 1  # of 3 KV heads rank 1 has the last
        tensor = POOL_TOKENS * heads * 64 * 4  # bytes: of a head 64 elements
        says = "" if ranks == 1 else "rank 1 says: "
        why = f"{says}there is no memory for a KV pool of 2048 blocks ({60 * tensor // 2**20} MiB): the system has no "
        (error,) = [line for line in server.log().splitlines() if "error" in line]
        assert error == f"error: rank 0: {why}{tensor} bytes"
    finally:
        server.stop()
