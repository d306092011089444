"""Converts one GGUF into a model directory.

Everything that can be refused is refused by `Conversion.plan`, before a byte is written; `write` then only streams.
Peak memory beyond the interpreter: the parsed vocabulary plus one piece of one tensor, whatever the model's size
(SmolLM2-135M: 170 MB at the peak, most of it the vocabulary); the mapped file itself is page cache.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headrace_server.prepare.gguf_config import generation_config, model_config
from headrace_server.prepare.gguf_file import read_gguf
from headrace_server.prepare.gguf_tokenizer import tokenizer_files
from headrace_server.prepare.gguf_weights import Weight, bfloat16_pieces, plan_weights, source_tensors
from headrace_server.prepare.progress import byte_progress
from headrace_server.prepare.safetensors_file import write_bfloat16
from headrace_server.weights.index import SINGLE, SOURCE_BLOCKS
from headrace_server.weights.source_blocks import table_document


@dataclass(frozen=True)
class Conversion:
    """A GGUF that has been read and understood, ready to be written."""

    documents: dict[str, dict[str, Any]]  # file name → JSON
    weights: list[Weight]
    title: str

    @classmethod
    def plan(cls, gguf_path: Path) -> Conversion:
        """Read the whole of the file but its weights. PrepareError when it cannot be converted."""
        print(f"Reading {gguf_path.name}", file=sys.stderr, flush=True)
        gguf = read_gguf(gguf_path)
        config = model_config(gguf)
        weights = plan_weights(gguf, config)
        documents = {
            "config.json": config,
            "generation_config.json": generation_config(gguf),
            **tokenizer_files(gguf, config["max_position_embeddings"]),
            SOURCE_BLOCKS: table_document(gguf_path.stat().st_size, source_tensors(weights, config)),
        }
        return cls(documents, weights, gguf_path.stem)

    @property
    def size(self) -> int:
        """Bytes on disk, nearly: the weights, and room for the JSON files."""
        return self._weight_bytes + (32 << 20)

    def write(self, directory: Path) -> None:
        """Write every file of the model into `directory`."""
        for name, document in self.documents.items():
            text = json.dumps(document, ensure_ascii=False, indent=None if name == "tokenizer.json" else 2)
            (directory / name).write_text(text + "\n", encoding="utf-8")
        write_bfloat16(directory / SINGLE, {weight.name: weight.shape for weight in self.weights}, self._pieces())

    @property
    def _weight_bytes(self) -> int:
        return sum(2 * math.prod(weight.shape) for weight in self.weights)

    def _pieces(self) -> Iterator[np.ndarray]:
        with byte_progress(f"Converting {self.title}", self._weight_bytes) as progress:
            for weight in self.weights:
                for piece in bfloat16_pieces(weight):
                    yield piece
                    progress.update(piece.nbytes)
