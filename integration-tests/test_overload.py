"""Too many requests: refused at once with the time to come again, and never at another tenant's cost under `fair`."""

import json
import socket
import time
from pathlib import Path

import pytest

from harness.server import Server, wait_for

FLOOD = 1000
# An answer of 80 s with steps of 10 ms: however busy the machine, the flood is still there when the test looks.
ENDLESS = 8000


def fake_router(model_dir: Path, *flags: str, rows: int = 8) -> Server:
    words = ("--fake-shard", "--model-id", str(model_dir), "--max-batch-size", str(rows), *flags)
    server = Server(*words, command="router")
    server.wait_until_ready()
    return server


def generate_request(prompt: str, tokens: int, tenant: str) -> bytes:
    parameters = {"max_new_tokens": tokens, "ignore_eos_token": True}
    body = json.dumps({"inputs": prompt, "parameters": parameters}).encode()
    head = f"POST /generate HTTP/1.1\r\nhost: x\r\nx-tenant-id: {tenant}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def open_flood(server: Server, count: int, tokens: int) -> list[socket.socket]:
    """So many requests of tenant a at the same time; nobody reads the answers."""
    sockets = []
    for n in range(count):
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        connection.sendall(generate_request(f"flood {n}", tokens, "a"))
        sockets.append(connection)
    return sockets


def statuses(sockets: list[socket.socket]) -> list[int]:
    """Of those that have been answered."""
    found = []
    for connection in sockets:
        connection.setblocking(False)
        try:
            found.append(int(connection.recv(64).split()[1]))
        except BlockingIOError:
            continue
    return found


@pytest.mark.parametrize("rows", [8, 256], ids=["most of the flood waits", "all of the flood runs"])
def test_a_tenant_that_floods_costs_the_other_nothing_but_its_share(rows: int, model_dir: Path) -> None:
    server = fake_router(model_dir, "--scheduling-policy", "fair", "--fake-step-us", "10000", rows=rows)
    flood: list[socket.socket] = []
    try:
        flood = open_flood(server, FLOOD, ENDLESS)
        wait_for(lambda: server.metric("tgi_batch_current_size") == min(rows, 128), "the flood to run")
        for n in range(20):  # more than twice as many as the flood has rows: they must give way again and again
            body = {"inputs": f"small {n}", "parameters": {"max_new_tokens": 5, "ignore_eos_token": True}}
            status, _, answer = server.exchange("POST", "/generate", body, headers={"x-tenant-id": "b"})
            assert status == 200, answer
        answered = statuses(flood)
        assert answered.count(429) >= FLOOD - 128
        assert answered.count(200) == 0, "it waited for the flood to end"
        if rows == 8:
            assert server.metric("headrace_rejections_total", cause="displaced") > 0
    finally:
        for connection in flood:
            connection.close()
        server.stop()


def test_a_refusal_is_immediate_and_says_when_to_come_again(model_dir: Path) -> None:
    server = fake_router(model_dir, "--max-concurrent-requests", "32", "--fake-step-us", "10000")
    flood: list[socket.socket] = []
    try:
        flood = open_flood(server, 32, ENDLESS)
        wait_for(lambda: server.metric("tgi_batch_current_size") == 8, "the flood to run")
        wait_for(lambda: server.metric("tgi_queue_size") == 24, "the others to wait")
        times: list[float] = []
        # The others may have waited for a core.
        while len(times) < 20 or (min(times) >= 0.01 and len(times) < 500):
            began = time.monotonic()
            status, headers, answer = server.exchange("POST", "/generate", {"inputs": "one more"})
            times.append(time.monotonic() - began)
            assert (status, answer["error_type"]) == (429, "overloaded")
            assert answer["error"].startswith("Model is overloaded")
            assert 1 <= int(headers["retry-after"]) <= 3600
        assert min(times) < 0.01, f"seconds: {times}"
        assert statuses(flood) == [], "the flood has ended"
    finally:
        for connection in flood:
            connection.close()
        server.stop()


def test_a_deadline_that_cannot_be_kept_is_refused_or_dropped_and_never_served_late(model_dir: Path) -> None:
    server = fake_router(model_dir, "--fake-step-us", "10000")
    flood: list[socket.socket] = []
    try:
        flood = open_flood(server, 40, ENDLESS)
        wait_for(lambda: server.metric("tgi_queue_size") == 32, "others to wait")
        body = {"inputs": "late", "parameters": {"max_new_tokens": 5, "deadline_ms": 200}}
        status, headers, answer = server.exchange("POST", "/generate", body)
        assert (status, answer["error_type"]) == (429, "overloaded")
        assert int(headers["retry-after"]) >= 1
        assert statuses(flood) == [], "it waited until a row was free"
    finally:
        for connection in flood:
            connection.close()
        server.stop()
