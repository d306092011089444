"""schemathesis against our own OpenAPI document: requests that it allows and requests that it forbids, and each answer
checked against what it says of that.

The server makes up its tokens, and few of them, so that thousands of requests take a minute.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from harness.clients import CHECKS, ENVIRONMENTS
from harness.server import Server, embedded_model_dir

SCHEMATHESIS = ENVIRONMENTS / "schemathesis" / "bin" / "schemathesis"
SETTINGS = CHECKS / "schemathesis.toml"
HOOKS = CHECKS / "schemathesis_events.py"
GRACE = 120  # seconds: the last request, and failures that are made smaller


def start_server() -> Server:
    """Answers at once, and briefly."""
    model = str(embedded_model_dir())
    server = Server("--fake-shard", "--model-id", model, "--max-total-tokens", "128", "--kserve", command="router")
    server.wait_until_ready()
    return server


def fuzz(server: Server, seconds: int, seed: int, folder: Path, report: IO[str]) -> bool:
    """Whether every answer was as it must be. What schemathesis says goes to `report`, its notes into `folder`."""
    command = [
        *(str(SCHEMATHESIS), "--config-file", str(SETTINGS), "--no-color", "run", f"{server.url}/api-doc/openapi.json"),
        *("--max-time", str(seconds), "--seed", str(seed)),
    ]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "SCHEMATHESIS_HOOKS": str(HOOKS)}
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=report,
        stderr=subprocess.STDOUT,
        timeout=seconds + GRACE,
        check=False,
    )
    # What it tries last may have hurt a server that had answered before.
    return done.returncode == 0 and server.get("/health")[0] == 200 and "panicked" not in server.log()


def main(seconds: int) -> int:
    """`make fuzz-api`: another seed each time, which the report names."""
    server = start_server()
    try:
        with tempfile.TemporaryDirectory() as folder:
            passed = fuzz(server, seconds, int(time.time()), Path(folder), sys.stdout)
    finally:
        server.stop()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
