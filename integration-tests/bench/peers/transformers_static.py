"""transformers' generate in static batches: what most people write first. `static_server` is the server around it."""

from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path

from bench.cases import Weights
from bench.peers.environment import ROOT
from bench.peers.peer import Model, Served
from bench.peers.process import serving

PYTHON = ROOT / ".venv" / "bin" / "python"
# As many as any case sends at once.
GROUP = 48


class TransformersStatic:
    name = "transformers"
    weights = frozenset({Weights.BF16})

    def install(self, home: Path, model: Model) -> str:
        return f"transformers {version('transformers')}, torch {version('torch')}, groups of up to {GROUP}"

    def serve(self, home: Path, model: Model, weights: Weights, log: Path) -> AbstractContextManager[Served]:
        program = Path(__file__).with_name("static_server.py")
        return serving([PYTHON, program, model.directory, "--port", "{port}", "--group", GROUP], log)
