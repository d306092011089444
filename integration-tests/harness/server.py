"""One `headrace serve` process under test."""

import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
HEADRACE = ROOT / "target" / "release" / "headrace"
PYTHON = ROOT / ".venv" / "bin" / "python"
START_LIMIT = 120.0  # seconds; a start takes a few, unless the machine is busy or converts the model first


# Below the ports that Linux gives to whoever connects: none of them is taken by chance before a server listens on it.
_FIRST_PORT, _END_PORT = 15_000, 32_000
_ports = itertools.count(_FIRST_PORT + 7 * os.getpid() % (_END_PORT - _FIRST_PORT))


def free_port(row: int = 1) -> int:
    """The first of so many ports in a row on which nobody listens, none of which this process was given before."""
    for _ in range(_END_PORT - _FIRST_PORT):
        ports = [_FIRST_PORT + (next(_ports) - _FIRST_PORT) % (_END_PORT - _FIRST_PORT) for _ in range(row)]
        if ports[-1] - ports[0] == row - 1 and all(map(_is_free, ports)):
            return ports[0]
    raise AssertionError(f"no {row} free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def embedded_model_dir() -> Path:
    """Converts the embedded model if that was never done, and says where it is."""
    return prepared_model_dir("embedded")


def prepared_model_dir(model_id: str) -> Path:
    """The same for any model."""
    command = [str(PYTHON), "-m", "headrace_server", "prepare", "--model-id", model_id]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(json.loads(answer.stdout.strip().splitlines()[-1])["model_dir"])


def wait_for(condition: Callable[[], bool], what: str, limit: float = 30.0) -> None:
    """Polls until the condition holds; fails with `what` after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {limit} s for {what}")
        time.sleep(0.02)


class Server:
    """A server process with its log and the processes below it."""

    def __init__(
        self,
        *flags: str,
        env: dict[str, str] | None = None,
        binary: Path = HEADRACE,
        command: str = "serve",
        port: int | None = None,
        port_variable: str | None = None,
    ):
        """`port_variable`: tell the port by this variable, as platforms do, and not by a flag."""
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the server)
        port_flag = ["--port", str(self.port)] if port_variable is None else []
        words = [str(binary), command, "--hostname", "127.0.0.1", *port_flag, *flags]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PROMETHEUS_PORT": "0", **(env or {})}
        if port_variable is not None:
            environment[port_variable] = str(self.port)
        environment.pop("OMP_NUM_THREADS", None)
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT, env=environment
        )
        self.family: list[psutil.Process] = []

    def wait_until_ready(self, limit: float = START_LIMIT) -> None:
        def ready() -> bool:
            code = self.process.poll()
            assert code is None, f"the server exited with {code} before it was ready:\n{self.log()}"
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.get("/health")[0] == 200
            return False

        wait_for(ready, "the server to be ready", limit)
        me = psutil.Process(self.process.pid)
        self.family = [me, *me.children(recursive=True)]

    def wait_until_it_heeds(self, number: signal.Signals) -> None:
        """Before that the signal ends the process as it ends any program that has only just begun."""

        def heeds() -> bool:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            caught = int(status.partition("SigCgt:")[2].split()[0], 16)
            return bool(caught >> (number - 1) & 1)

        wait_for(heeds, f"the server to heed {number.name}")

    def shard(self) -> psutil.Process:
        """The shard's process: `python -m headrace_server serve …`."""
        return next(p for p in self.family[1:] if "headrace_server" in " ".join(p.cmdline()))

    def survivors(self) -> list[str]:
        """Processes of this server that are still alive."""
        alive = []
        for process in self.family:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
        return alive

    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")

    def stop(self) -> int:
        """Terminates, kills what is left, and gives the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
        for process in self.family:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.pid != self.process.pid:
                    process.kill()
        code = self.process.wait(10)
        self._log.close()
        return code

    # ---- HTTP ----

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, timeout: float = 300
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (lower case) and body. `body`: bytes as they are, anything else as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            payload = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            given = {"content-type": "application/json", **(headers or {})}
            connection.request(method, path, payload, given if payload is not None else headers or {})
            answer = connection.getresponse()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def exchange(self, method: str, path: str, body: Any, **more: Any) -> tuple[int, dict[str, str], Any]:
        """`request`, and its body read as JSON."""
        status, headers, raw = self.request(method, path, body, **more)
        return status, headers, json.loads(raw)

    def get(self, path: str, timeout: float = 10) -> tuple[int, str]:
        status, _, body = self.request("GET", path, timeout=timeout)
        return status, body.decode()

    def post(self, path: str, body: Any, timeout: float = 300) -> tuple[int, Any]:
        """Status and JSON (or text, where the body is none)."""
        status, _, raw = self.request("POST", path, body, timeout=timeout)
        try:
            return status, json.loads(raw)
        except ValueError:
            return status, raw.decode("utf-8", "replace")

    def generate(self, prompt: str, **parameters: Any) -> dict[str, Any]:
        """POST /generate; fails the test unless it answers 200."""
        status, answer = self.post("/generate", {"inputs": prompt, "parameters": parameters})
        assert status == 200, answer
        return answer

    def token_ids(self, prompt: str, count: int, **parameters: Any) -> list[int]:
        """Greedy continuation of exactly `count` tokens, end-of-sequence ignored."""
        wanted = {"max_new_tokens": count, "details": True, "ignore_eos_token": True, **parameters}
        return [token["id"] for token in self.generate(prompt, **wanted)["details"]["tokens"]]

    def metric(self, name: str, default: float | None = None, **labels: str) -> float:
        """The value of one sample of /metrics."""
        wanted = {f'{key}="{value}"' for key, value in labels.items()}
        for line in self.get("/metrics")[1].splitlines():
            found = re.fullmatch(rf"{name}(?:\{{(.*)\}})? (\S+)", line)
            if found and wanted <= set((found[1] or "").split(",")):
                return float(found[2])
        if default is None:
            raise AssertionError(f"no metric {name} {labels}")
        return default

    def wait_until_idle(self, limit: float = 60) -> None:
        """Until nothing runs or waits and no KV block is held: free or cached, all of them."""

        def idle() -> bool:
            return (
                self.metric("tgi_batch_current_size", 0) == 0
                and self.metric("tgi_queue_size", 0) == 0
                and self.metric("headrace_kv_blocks", 0, state="held") == 0
            )

        wait_for(idle, "the server to be idle", limit)
