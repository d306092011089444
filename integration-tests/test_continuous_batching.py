"""The batch is decided anew before every step: nobody waits for a longer neighbour."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from harness.server import Server, wait_for


def test_a_short_request_that_comes_later_is_answered_first(server: Server) -> None:
    done: dict[str, float] = {}

    def ask(name: str, tokens: int) -> None:
        server.token_ids("Once upon a time", tokens)
        done[name] = time.monotonic()

    long = threading.Thread(target=ask, args=("long", 200))
    long.start()
    wait_for(lambda: server.metric("tgi_batch_current_size", 0) == 1, "the long request to run")
    ask("short", 5)
    assert "long" not in done, "the short request waited for the long one"
    long.join()
    assert done["short"] < done["long"]


def test_forty_eight_clients_share_steps(server: Server) -> None:
    rows_before = server.metric("headrace_step_rows_sum", 0)
    steps_before = server.metric("headrace_step_rows_count", 0)
    with ThreadPoolExecutor(48) as pool:
        answers = list(pool.map(lambda n: server.token_ids(f"Number {n} is", 16 + n % 5), range(48)))
    assert [len(answer) for answer in answers] == [16 + n % 5 for n in range(48)]
    rows = server.metric("headrace_step_rows_sum") - rows_before
    steps = server.metric("headrace_step_rows_count") - steps_before
    assert rows / steps > 10, f"{rows} rows in {steps} steps: the clients did not share them"
