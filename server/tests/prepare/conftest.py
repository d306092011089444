"""Fixtures of the prepare tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helper modules beside this file

from prepare_runs import Outcome, command, environment

from headrace_server.prepare.cli import main


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


@pytest.fixture
def prepare_process():
    """Runs the command as a process: prepare_process(*flags, NAME=value of an environment variable)."""

    def run(*flags: object, **values: str) -> Outcome:
        done = subprocess.run(
            command(*flags), env=environment(**values), capture_output=True, text=True, timeout=120, check=False
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run
