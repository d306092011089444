"""What a peer is."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.cases import Weights


class Unavailable(Exception):
    """This peer cannot be measured here; the sentence says why and what to do."""


@dataclass(frozen=True)
class Model:
    """The same weights for all: a directory of safetensors, and the GGUF that it was converted from, if it was."""

    directory: Path
    gguf: Path | None

    @property
    def tokenizer(self) -> Path:
        return self.directory / "tokenizer.json"


@dataclass(frozen=True)
class Served:
    """A server that serves. `began`: when its process was started, by the monotonic clock."""

    url: str
    began: float


class Peer(Protocol):
    name: str
    # Those it can serve. Every server answers /health and OpenAI's /v1/completions with a stream.
    weights: frozenset[Weights]

    def install(self, home: Path, model: Model) -> str:
        """Makes everything a start needs, below `home`, unless it is there; says what was installed, with versions.

        Raises Unavailable.
        """

    def serve(self, home: Path, model: Model, weights: Weights, log: Path) -> AbstractContextManager[Served]:
        """The server while the `with` lasts, with the settings of somebody who has read its manual.

        Raises Unavailable where it does not get to serving.
        """
