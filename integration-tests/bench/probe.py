"""How long short answers take under load, as a client sees it that does nothing else: a process of its own asks each
question four times a second.

The open-loop client reads a hundred streams meanwhile, on the same cores: what it sees is mostly its own work.
"""

import http.client
import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from urllib.parse import urlsplit

PAUSE_S = 0.25


@dataclass(frozen=True)
class Question:
    """What is asked, and the status of the answers that count."""

    method: str
    path: str
    status: int
    body: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


def refused(headers: dict[str, str]) -> Question:
    """A request that an overloaded server refuses; where it does not, the answer takes as long as it takes."""
    body = json.dumps({"inputs": "Hello", "parameters": {"max_new_tokens": 1}})
    return Question("POST", "/generate", 429, body, {"content-type": "application/json", **headers})


# What an orchestrator asks.
HEALTH = (Question("GET", "/livez", 200), Question("GET", "/readyz", 200))


class Probe:
    """Asks from `with` on; `took_ms` is there after it: by path, how long each answer that counts took."""

    def __init__(self, url: str, questions: Sequence[Question]) -> None:
        self.took_ms: dict[str, list[float]] = {}
        self._ours, theirs = multiprocessing.Pipe()
        arguments = (url, tuple(questions), theirs)
        self._process = multiprocessing.get_context("spawn").Process(target=_ask, args=arguments)

    def __enter__(self) -> "Probe":
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ours.send("stop")
        self.took_ms = self._ours.recv()
        self._process.join()


def _ask(url: str, questions: Sequence[Question], stop: Connection) -> None:
    # Only the superuser may; for others the figures hold more of the waiting for a core.
    with suppress(PermissionError):
        os.nice(-10)
    address = urlsplit(url)
    client = http.client.HTTPConnection(address.hostname or "", address.port, timeout=120)
    took_ms: dict[str, list[float]] = {question.path: [] for question in questions}
    while not stop.poll(PAUSE_S):
        for question in questions:
            sent = time.perf_counter()
            client.request(question.method, question.path, question.body, question.headers)
            answer = client.getresponse()
            answer.read()
            if answer.status == question.status:
                took_ms[question.path].append(1000 * (time.perf_counter() - sent))
    stop.send(took_ms)
