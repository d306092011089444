"""What the checks of every Python client share: the servers' addresses, what curl would get, and the rule that a client
speaks to this machine only. Nothing here, nor in a check, imports a module of the project: these files run in the
client's own environment. `integration-tests/test_clients.py` starts them; its docstring says how to run one by hand.
"""

import json
import os
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

# What the server at `locked_url` wants to hear.
KEY = os.environ.get("HEADRACE_KEY", "")

# Hosts that a client tries whatever it is told; it is refused, and must work all the same.
TOLERATED: set[str] = set()


@pytest.fixture(scope="session")
def url() -> str:
    """A server with the real small model and default limits. It may be shared with other tests."""
    return os.environ["HEADRACE_URL"]


@pytest.fixture(scope="session")
def locked_url() -> str:
    """A server, with made-up tokens, that answers only those who know the KEY."""
    return os.environ["HEADRACE_LOCKED_URL"]


@pytest.fixture(scope="session")
def busy_url() -> str:
    """A server, with slow made-up tokens, that takes one request at a time and refuses a second."""
    return os.environ["HEADRACE_BUSY_URL"]


def curl(url: str, body: Any = None) -> Any:
    """What a client that adds nothing gets: the JSON of the answer. Without a body it is a GET."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture(scope="session", autouse=True)
def loopback_only() -> Iterator[None]:
    """Refuses every connection to another machine and every look-up of a name, and fails the run if one was tried,
    also where the client kept quiet about it."""
    tried: list[str] = []

    def refuse_unless_local(host: Any) -> None:
        if host not in (None, "", "localhost", "127.0.0.1", b"localhost", b"127.0.0.1", "::1"):
            if host not in TOLERATED:
                tried.append(str(host))
            raise OSError(f"a client under test may not reach {host}")

    def guarded(method: Any) -> Any:
        def connect(self: socket.socket, address: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6):
                refuse_unless_local(address[0])
            return method(self, address)

        return connect

    def look_up(host: Any, *rest: Any, **more: Any) -> Any:
        refuse_unless_local(host)
        return real_look_up(host, *rest, **more)

    real_look_up = socket.getaddrinfo
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded(socket.socket.connect), raising=True)
        patch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex), raising=True)
        patch.setattr(socket, "getaddrinfo", look_up)
        yield
    assert not tried, f"the client reached for {tried}"
