"""Runs of the command, and what they left."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER = Path(__file__).parents[2]
"""The folder that holds the package."""


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


def environment(**values: str) -> dict[str, str]:
    """The environment of a process that imports the package from this tree."""
    return {**os.environ, "PYTHONPATH": str(SERVER), "OMP_NUM_THREADS": "1", **values}


def command(*flags: object) -> list[str]:
    """Arguments of the command as a process of its own."""
    return [sys.executable, "-m", "headrace_server.prepare", *map(str, flags)]
