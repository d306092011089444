"""A server's process: started, watched until it serves, ended with everything that it started."""

import http.client
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.peers.peer import Served, Unavailable
from harness.server import free_port

# Longer than any of them needs, compiling included.
START_LIMIT_S = 600
# Then it is killed.
GRACE_S = 20
POLL_S = 0.005
SHOWN_LOG = 600


@contextmanager
def serving(words: Sequence[object], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Starts the command with {port} replaced, and waits until /health says 200."""
    port = free_port()
    command = [str(word).replace("{port}", str(port)) for word in words]
    began = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", **(environment or {})},
            start_new_session=True,
        )
    try:
        _wait_until_healthy(process, port, began + START_LIMIT_S, log)
        yield Served(f"http://127.0.0.1:{port}", began)
    finally:
        _end(process)


def _wait_until_healthy(process: subprocess.Popen[bytes], port: int, deadline: float, log: Path) -> None:
    while not _healthy(port):
        if (code := process.poll()) is not None:
            raise Unavailable(f"it exited with {code} before it served; the end of {log}:\n{_tail(log)}")
        if time.monotonic() > deadline:
            raise Unavailable(f"it did not serve within {START_LIMIT_S} s; the end of {log}:\n{_tail(log)}")
        time.sleep(POLL_S)


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Waits until everything of the session that the process leads is gone: engines start workers of their own, and the
    next server must not share its cores with them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE_S
        alive = _signal(process.pid, number)
        while alive and time.monotonic() < deadline:
            time.sleep(POLL_S)
            process.poll()
            alive = _signal(process.pid, 0)
        if not alive:
            break
    process.wait()


def _signal(session: int, number: int) -> bool:
    """Whether there was anybody to take it."""
    try:
        os.killpg(session, number)
    except ProcessLookupError:
        return False
    return True


def _tail(log: Path) -> str:
    return log.read_text(errors="replace").strip()[-SHOWN_LOG:]
