"""The page at `/` in a real browser: headless Chromium, driven as people use it.

`make browser` installs Chromium and axe from npm into browser/node_modules. The checks themselves are in
browser/live_page_checks.mjs; each is a test by its name, and what ran is printed.
"""

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from harness.clients import run_browser_checks
from harness.server import Server, wait_for

KEY = "open-sesame"


class Mortal:
    """A server that stops and starts again at the same address, when told to by `POST /stop` and `/start` of `url`."""

    def __init__(self, *flags: str):
        self.flags = flags
        self.server = self._started(None)
        mortal = self

        class Control(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                {"/stop": mortal.stop, "/start": mortal.start}[self.path]()
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing: pytest has the output."""

        self._control = ThreadingHTTPServer(("127.0.0.1", 0), Control)
        self.url = f"http://127.0.0.1:{self._control.server_port}"
        threading.Thread(target=self._control.serve_forever, daemon=True).start()

    def _started(self, port: int | None) -> Server:
        server = Server(*self.flags, command="router", port=port)
        try:
            server.wait_until_ready()
        except BaseException:
            server.stop()
            raise
        return server

    def stop(self) -> None:
        if self.server.process.poll() is None:
            self.server.stop()

    def start(self) -> None:
        self.server = self._started(self.server.port)

    def close(self) -> None:
        self._control.shutdown()
        self._control.server_close()
        self.stop()


@pytest.fixture
def servers(launch, model_dir: Path) -> Iterator[dict[str, str]]:
    """The addresses that the checks want: the real model; one that is locked; one that stops and comes back. The last
    two make up their tokens. Each has two rows and few blocks, so that a little load shows."""
    small = ("--max-batch-size", "2", "--max-batch-total-tokens", "8192")
    fake = ("--fake-shard", "--model-id", str(model_dir), "--fake-step-us", "20000", *small)
    real = launch("--dtype", "float32", *small)
    locked = launch(*fake, "--api-key", KEY, command="router")
    mortal = Mortal(*fake, "--graceful-termination-timeout", "1")
    try:
        yield {
            "HEADRACE_URL": real.url,
            "HEADRACE_LOCKED_URL": locked.url,
            "HEADRACE_KEY": KEY,
            "HEADRACE_QUICK_URL": mortal.server.url,
            "HEADRACE_CONTROL_URL": mortal.url,
        }
    finally:
        mortal.close()


@pytest.fixture
def no_browser_stays(tmp_path: Path) -> Iterator[None]:
    """Whatever becomes of the checks: no process that keeps its files in this test's folder outlives it."""

    def left() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if any(str(tmp_path) in word for word in process.cmdline()):
                    found.append(process)
        return found

    yield
    try:
        wait_for(lambda: not left(), "the browser to be gone", limit=10)
    finally:
        for process in left():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.mark.usefixtures("no_browser_stays")
def test_the_live_page_works_in_a_browser(servers: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report = run_browser_checks("live_page_checks.mjs", servers, home=tmp_path)
    with capsys.disabled():
        print(f"\nlive page: {len(report.passed)} checks passed")
        for name in report.passed:
            print(f"    {name}")
    assert report.succeeded, report.output
