"""The device never waits for the router: the next step lies in the shard's inbox before the one before has ended. And a
device without memory for a step gets a smaller one."""

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from harness.server import PYTHON, ROOT, START_LIMIT, Server, wait_for

ANSWERS, TOKENS = 8, 250
MOST_LATE = 0.01
STEP_MS = 5
PATIENCE = 2  # seconds
TRIES = 6
# Sleeps of a millisecond that may take two and more in a try that counts: then nobody else wants the cores.
MOST_OVERSLEPT = 0.002


@contextmanager
def timed_shard(
    folder: Path, model_dir: Path, *, most_tokens: int = 10**6, patience: int = 0
) -> Iterator[tuple[str, Path]]:
    """The address of a shard with steps of 5 ms and memory for so many tokens, and its log."""
    socket, log = folder / "shard", folder / "steps.jsonl"
    log.write_text("")
    program = ROOT / "integration-tests/harness/timed_shard.py"
    words = [str(PYTHON), str(program), str(log), str(STEP_MS), str(most_tokens), str(patience), "serve"]
    words += ["--model-dir", str(model_dir), "--uds-path", str(socket)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(socket.exists, "the shard's socket", START_LIMIT)
        yield f"unix:{socket}", log
    finally:
        process.terminate()
        process.wait(30)


def test_the_next_step_is_there_before_the_last_has_ended(
    tmp_path: Path, model_dir: Path, launch: Callable[..., Server]
) -> None:
    """Whatever else runs on this computer delays messages too: tries in which nothing does count, the best of them."""
    late_shares = []
    with timed_shard(tmp_path, model_dir) as (address, log):
        server = launch("--model-id", str(model_dir), "--shards", address, command="router")
        for _ in range(TRIES):
            log.write_text("")
            with Overslept() as overslept:
                ask_at_once(server, [f"Question {n}" for n in range(ANSWERS)], TOKENS)
            share = late_share(steps_of(log))
            if share <= MOST_LATE:
                return
            if overslept.share <= MOST_OVERSLEPT:
                late_shares.append(share)
    assert not late_shares, f"steps that came after the one before had ended: {late_shares}"


def test_the_next_step_comes_although_the_last_has_not_ended(
    tmp_path: Path, model_dir: Path, launch: Callable[..., Server]
) -> None:
    """However slow the computer is: a device that has time waits for it."""
    with timed_shard(tmp_path, model_dir, patience=PATIENCE) as (address, log):
        server = launch("--model-id", str(model_dir), "--shards", address, command="router")
        ask_at_once(server, [f"Question {n}" for n in range(ANSWERS)], TOKENS)
        assert late_share(steps_of(log)) == 0


def test_a_step_too_large_for_the_memory_is_computed_again_in_smaller_ones(
    tmp_path: Path, model_dir: Path, launch: Callable[..., Server]
) -> None:
    """Warmup can't know everything: here prompts of 40 tokens fit, but not with rows that decode beside them."""
    with timed_shard(tmp_path, model_dir, most_tokens=40) as (address, _):
        flags = ["--model-id", str(model_dir), "--shards", address, "--max-batch-prefill-tokens", "40"]
        server = launch(*flags, command="router")
        question = "What is the tallest mountain of each continent, and who climbed it first? " * 2
        ask_at_once(server, [f"{n}: {question}" for n in range(ANSWERS)], 40)
        assert server.metric("tgi_batch_inference_failure", method="prefill") >= 1
    assert "ran out of memory; its requests are computed again, in steps of at most" in server.log()


def ask_at_once(server: Server, prompts: list[str], tokens: int) -> None:
    """Each is answered with so many tokens."""
    with ThreadPoolExecutor(len(prompts)) as pool:
        answers = list(pool.map(lambda prompt: server.token_ids(prompt, tokens), prompts))
    assert [len(answer) for answer in answers] == [tokens] * len(prompts)


class Overslept:
    """How often this process wakes late while something else is done."""

    def __enter__(self) -> "Overslept":
        self._done = threading.Event()
        self._took: list[float] = []
        self._thread = threading.Thread(target=self._sleep)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def share(self) -> float:
        """Of the sleeps of a millisecond that took two and more."""
        return sum(took > 0.002 for took in self._took) / max(len(self._took), 1)

    def _sleep(self) -> None:
        while not self._done.is_set():
            began = time.monotonic()
            time.sleep(0.001)
            self._took.append(time.monotonic() - began)


def steps_of(log: Path) -> list[dict[str, float]]:
    """In the order in which they landed."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def late_share(steps: list[dict[str, float]]) -> float:
    """Of the steps between the first and the last token of all, when there is always something to do."""
    busy = steps[1 : TOKENS - 1]
    late = [after for before, after in pairwise(busy) if after["arrived"] > before["ended"]]
    idle = sum(after["began"] - before["ended"] for before, after in pairwise(busy))
    share = idle / (busy[-1]["ended"] - busy[0]["began"])
    print(f"{len(busy)} steps of {STEP_MS} ms: {len(late)} came late, the device stood idle {share:.2%} of the time")
    return len(late) / len(busy)
