"""Real processes, real HTTP, the real small model: what a stranger would see.

`launch` starts `headrace serve` on a free port of 127.0.0.1 and stops it by its process id; `server` is one float32
server that tests share when they leave it as they found it. `reference` is transformers on the same files.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness.reference import Reference
from harness.server import Server, embedded_model_dir

# What runs in the clients' own environments: test_clients.py starts it.
collect_ignore = ["clients"]


@pytest.fixture(scope="session")
def model_dir() -> Path:
    """The converted embedded model: config.json, tokenizer.json, model.safetensors."""
    return embedded_model_dir()


@pytest.fixture(scope="session")
def reference(model_dir: Path) -> Reference:
    return Reference(model_dir)


@pytest.fixture
def launch() -> Iterator[Callable[..., Server]]:
    """Starts servers with the given flags; all of them are gone after the test."""
    started: list[Server] = []

    def start(*flags: str, **options: object) -> Server:
        server = Server(*flags, **options)  # type: ignore[arg-type]
        started.append(server)
        server.wait_until_ready()
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    server = Server("--dtype", "float32")
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    """The shared float32 server, idle before and after the test."""
    shared_server.wait_until_idle()
    yield shared_server
    shared_server.wait_until_idle()
