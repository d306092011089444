"""How long a refusal takes, as a client sees it that does nothing else: a process of its own asks four times a second.

The open-loop client reads a hundred streams meanwhile, on the same cores: what it sees is mostly its own work.
"""

import http.client
import json
import multiprocessing
import os
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from types import TracebackType
from urllib.parse import urlsplit

PAUSE_S = 0.25


class Probe:
    """Asks from `with` on; `refused_ms` is there after it."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.refused_ms: list[float] = []
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_ask, args=(url, headers, theirs))

    def __enter__(self) -> "Probe":
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ours.send("stop")
        self.refused_ms = self._ours.recv()
        self._process.join()


def _ask(url: str, headers: dict[str, str], stop: Connection) -> None:
    # Only the superuser may; for others the figures hold more of the waiting for a core.
    with suppress(PermissionError):
        os.nice(-10)
    address = urlsplit(url)
    client = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120)
    body = json.dumps({"inputs": "Hello", "parameters": {"max_new_tokens": 1}})
    refused_ms = []
    while not stop.poll(PAUSE_S):
        sent = time.perf_counter()
        client.request("POST", "/generate", body, {"content-type": "application/json", **headers})
        answer = client.getresponse()
        answer.read()
        if answer.status == 429:
            refused_ms.append(1000 * (time.perf_counter() - sent))
    stop.send(refused_ms)
