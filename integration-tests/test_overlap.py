"""The device never waits for the router: the next step lies in the shard's inbox before the one before has ended. And a
device without memory for a step gets a smaller one."""

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from harness.server import PYTHON, ROOT, Server, wait_for

STEP_MS = 5
ANSWERS, TOKENS = 8, 250
MOST_LATE = 0.01
TRIES = 8


@pytest.fixture
def timed_shard(tmp_path: Path, model_dir: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """The address of a shard with steps of 5 ms, and its log. Parameter: the tokens for which it has memory."""
    socket, log = tmp_path / "shard", tmp_path / "steps.jsonl"
    program = ROOT / "integration-tests/harness/timed_shard.py"
    words = [str(PYTHON), str(program), str(log), str(STEP_MS), str(getattr(request, "param", 10**6)), "serve"]
    words += ["--model-dir", str(model_dir), "--uds-path", str(socket)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(socket.exists, "the shard's socket")
        yield f"unix:{socket}", log
    finally:
        process.terminate()
        process.wait(30)


def test_the_next_step_is_there_before_the_last_has_ended(
    timed_shard: tuple[str, Path], model_dir: Path, launch: Callable[..., Server]
) -> None:
    """Whatever else runs on this computer delays messages too, so the best of a few tries counts."""
    address, log = timed_shard
    server = launch("--model-id", str(model_dir), "--shards", address, command="router")
    late_shares = []
    for _ in range(TRIES):
        log.write_text("")
        with ThreadPoolExecutor(ANSWERS) as pool:
            answers = list(pool.map(lambda n: server.token_ids(f"Question {n}", TOKENS), range(ANSWERS)))
        assert [len(answer) for answer in answers] == [TOKENS] * ANSWERS
        late_shares.append(late_share([json.loads(line) for line in log.read_text().splitlines()]))
        if late_shares[-1] <= MOST_LATE:
            return
    raise AssertionError(f"steps that came after the one before had ended: {late_shares}")


@pytest.mark.parametrize("timed_shard", [40], indirect=True, ids=["40 tokens"])
def test_a_step_too_large_for_the_memory_is_computed_again_in_smaller_ones(
    timed_shard: tuple[str, Path], model_dir: Path, launch: Callable[..., Server]
) -> None:
    """Warmup can't know everything: here prompts of 40 tokens fit, but not with rows that decode beside them."""
    flags = ["--model-id", str(model_dir), "--shards", timed_shard[0], "--max-batch-prefill-tokens", "40"]
    server = launch(*flags, command="router")
    question = "What is the tallest mountain of each continent, and who climbed it first? " * 2
    with ThreadPoolExecutor(ANSWERS) as pool:
        answers = list(pool.map(lambda n: server.token_ids(f"{n}: {question}", 40), range(ANSWERS)))
    assert [len(answer) for answer in answers] == [40] * ANSWERS
    assert server.metric("tgi_batch_inference_failure", method="prefill") >= 1
    assert "ran out of memory; its requests are computed again, in steps of at most" in server.log()


def late_share(steps: list[dict[str, float]]) -> float:
    """Of the steps between the first and the last token of all, when there is always something to do."""
    busy = steps[1 : TOKENS - 1]
    late = [after for before, after in pairwise(busy) if after["arrived"] > before["ended"]]
    idle = sum(after["began"] - before["ended"] for before, after in pairwise(busy))
    share = idle / (busy[-1]["ended"] - busy[0]["began"])
    print(f"{len(busy)} steps of {STEP_MS} ms: {len(late)} came late, the device stood idle {share:.2%} of the time")
    return len(late) / len(busy)
