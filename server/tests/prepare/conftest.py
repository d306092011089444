"""Fixtures of the prepare tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tiny_models, block_formats, fake_hub

from headrace_server.prepare.cli import main

SERVER = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """What one run of the command left."""

    status: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The JSON line of a run that succeeded."""
        assert self.status == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    @property
    def directory(self) -> Path:
        """Where the prepared model is."""
        return Path(self.result["model_dir"])

    @property
    def error(self) -> str:
        """The one line that a run that failed ends with."""
        assert self.status == 1, self.out
        assert self.out == ""
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1
        assert self.err.endswith(lines[0] + "\n")
        assert "Traceback" not in self.err
        return lines[0]


@pytest.fixture
def cache(tmp_path):
    """An empty cache directory of converted models."""
    return tmp_path / "cache"


@pytest.fixture
def prepare(cache, capsys):
    """Runs the command in this process: prepare(model, *more flags)."""

    def run(model: object, *flags: str) -> Outcome:
        status = main(["--model-id", str(model), "--cache-dir", str(cache), *flags], environ={})
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


def command(*flags: object, **environ: str) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of `python -m headrace_server.prepare` as a process of its own."""
    words = [sys.executable, "-m", "headrace_server.prepare", *map(str, flags)]
    return words, {**os.environ, "PYTHONPATH": str(SERVER), "OMP_NUM_THREADS": "1", **environ}


@pytest.fixture
def prepare_process():
    """Runs the command as a process: prepare_process(*flags, NAME=value of an environment variable)."""

    def run(*flags: object, **environ: str) -> Outcome:
        words, environment = command(*flags, **environ)
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session")
def embedded(tmp_path_factory) -> Path:
    """The embedded model, converted once for all tests."""
    from headrace_server.prepare.sources import EMBEDDED, Request
    from headrace_server.prepare.sources import prepare as prepare_model

    place = tmp_path_factory.mktemp("embedded")
    return Path(prepare_model(Request(EMBEDDED, None, place, place)).model_dir)
