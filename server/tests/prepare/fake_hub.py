"""A Hugging Face hub in this process: the few routes that a download takes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "1234567890abcdef1234567890abcdef12345678"
REPO = "org/tiny"


@dataclass
class FakeHub:
    """One repository, `org/tiny`, at one commit of one branch, `main`."""

    files: Mapping[str, bytes]
    refusal: tuple[int, str] | None = None  # status and x-error-code of every answer instead
    asked: list[str] = field(default_factory=list)  # method and path of every request
    url: str = ""

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        self.asked.append(f"{method} {path}")
        path = path.split("?")[0]
        if self.refusal is not None:
            status, code = self.refusal
            return status, {"X-Error-Code": code, "X-Error-Message": "no"}, b""
        if not path.removeprefix("/api/models").startswith(f"/{REPO}"):
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if path in (
            f"/api/models/{REPO}",
            f"/api/models/{REPO}/revision/main",
            f"/api/models/{REPO}/revision/{COMMIT}",
        ):
            siblings = [{"rfilename": name} for name in self.files]
            return _json({"id": REPO, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False})
        if path.startswith(f"/api/models/{REPO}/revision/"):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        if path == f"/api/models/{REPO}/tree/{COMMIT}":
            return _json(
                [
                    {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                    for name, content in self.files.items()
                ]
            )
        content = self.files.get(path.removeprefix(f"/{REPO}/resolve/{COMMIT}/"))
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        return 200, {"ETag": f'"{hashlib.sha1(content).hexdigest()}"', "X-Repo-Commit": COMMIT}, content


def _json(value: object) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


@contextmanager
def serve(hub: FakeHub) -> Iterator[FakeHub]:
    """The hub on a port of 127.0.0.1, its `url` set."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            status, headers, body = hub.answer(self.command, self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_GET = do_HEAD = _answer  # http.server's names

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
