"""This repository's server, as `make build` left it."""

from contextlib import AbstractContextManager
from pathlib import Path

from bench.cases import Weights
from bench.peers.environment import ROOT, command
from bench.peers.peer import Model, Served, Unavailable
from bench.peers.process import serving

BINARY = ROOT / "target" / "release" / "headrace"


class Headrace:
    name = "headrace"
    weights = frozenset(Weights)

    def install(self, home: Path, model: Model) -> str:
        if not BINARY.exists():
            raise Unavailable(f"{BINARY} is not there: run 'make build'")
        return command([BINARY, "--version"]).strip()

    def serve(self, home: Path, model: Model, weights: Weights, log: Path) -> AbstractContextManager[Served]:
        quantize = {Weights.BF16: [], Weights.INT8: ["--quantize", "int8"], Weights.INT4: ["--quantize", "int4"]}
        words = [BINARY, "serve", "--model-id", model.directory, "--hostname", "127.0.0.1", "--port", "{port}"]
        return serving([*words, "--dtype", "bfloat16", *quantize[weights]], log, {"PROMETHEUS_PORT": "0"})
