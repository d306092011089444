"""Whatever dies, and however: nothing is left behind, and the error names what died."""

import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from harness.server import Server, wait_for

FLAGS = ("--dtype", "float32")


PATIENCE = 30.0  # seconds for what takes one or two, unless the machine is busy; an answer of 4,000 tokens takes longer


def nothing_left(server: Server, limit: float = PATIENCE) -> None:
    wait_for(lambda: server.survivors() == [], f"no process left, but {server.survivors()}", limit)


def ask_in_background(server: Server, tokens: int) -> tuple[threading.Thread, list[Any]]:
    """A request under way; its (status, answer) arrives in the list."""
    answers: list[Any] = []

    def ask() -> None:
        try:
            parameters = {"max_new_tokens": tokens, "ignore_eos_token": True, "details": True}
            answers.append(server.post("/generate", {"inputs": "Once upon a time", "parameters": parameters}))
        except OSError as error:
            answers.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    wait_for(lambda: server.metric("tgi_batch_current_size", 0) >= 1, "the request to run")
    return thread, answers


def wait_until_it_refuses(server: Server) -> Any:
    """Asks for a token until the answer is 503; returns that answer."""
    answers: list[tuple[int, Any]] = []

    def refused() -> bool:
        answers.append(server.post("/generate", {"inputs": "late", "parameters": {"max_new_tokens": 1}}))
        return answers[-1][0] == 503

    wait_for(refused, "new requests to be refused with 503")
    return answers[-1][1]


def test_sigterm_finishes_what_runs_refuses_what_is_new_and_leaves_nothing(launch: Callable[..., Server]) -> None:
    server = launch(*FLAGS)
    thread, answers = ask_in_background(server, 240)
    server.process.send_signal(signal.SIGTERM)
    refusal = wait_until_it_refuses(server)
    assert refusal["error_type"] == "shutting_down"
    thread.join()
    status, answer = answers[0]
    assert status == 200
    assert answer["details"]["generated_tokens"] == 240
    assert server.process.wait(PATIENCE) == 0
    nothing_left(server)


@pytest.mark.parametrize("ranks", [1, 2])
def test_sigterm_at_any_moment_of_the_start_ends_it_well_and_without_complaint(ranks: int) -> None:
    for moment in (0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2):
        server = Server(*FLAGS, "--device", "cpu", "--num-shard", str(ranks))
        server.wait_until_it_heeds(signal.SIGTERM)
        time.sleep(moment)
        server.process.send_signal(signal.SIGTERM)
        code, log = server.process.wait(PATIENCE), server.log()
        server.stop()
        assert code == 0, f"after {moment} s:\n{log}"
        assert not [line for line in log.splitlines() if "Traceback" in line or "Interrupt" in line or "error" in line]


def test_drain_is_bounded_by_the_graceful_termination_timeout(launch: Callable[..., Server]) -> None:
    server = launch(*FLAGS, "--graceful-termination-timeout", "1")
    thread, answers = ask_in_background(server, 4000)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(PATIENCE)
    thread.join()
    assert answers
    nothing_left(server)


def test_a_second_signal_stops_at_once(launch: Callable[..., Server]) -> None:
    server = launch(*FLAGS)
    thread, answers = ask_in_background(server, 4000)
    server.process.send_signal(signal.SIGINT)
    wait_until_it_refuses(server)
    server.process.send_signal(signal.SIGINT)
    server.process.wait(PATIENCE)
    thread.join()
    assert answers
    nothing_left(server)


def test_sigkill_of_the_router_takes_the_shard_along(launch: Callable[..., Server]) -> None:
    server = launch(*FLAGS)
    thread, answers = ask_in_background(server, 4000)
    server.process.kill()
    thread.join()
    assert answers
    nothing_left(server)


def test_sigkill_of_the_shard_fails_what_ran_and_names_it(launch: Callable[..., Server]) -> None:
    server = launch(*FLAGS)
    shard = server.shard()
    thread, answers = ask_in_background(server, 4000)
    shard.kill()
    thread.join(PATIENCE)
    assert not thread.is_alive(), "the client was left waiting"
    status, answer = answers[0]
    assert status == 424
    assert answer["error_type"] == "generation"
    assert "rank 0" in answer["error"]
    assert server.process.wait(PATIENCE) != 0
    nothing_left(server)
    assert f"rank 0 (pid {shard.pid})" in server.log()
    assert "signal 9" in server.log()
