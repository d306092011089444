"""The quantized blocks of the GGUF that a model directory was converted from, by the converted tensors' names.

The conversion leaves a link to the GGUF and a table of where each tensor's blocks lie in it. So nobody parses the file
again, and its blocks can be used as they are while the rest of the program sees a plain checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace_server.log import LOGGER
from headrace_server.weights.index import SOURCE_BLOCKS, SOURCE_LINK


@dataclass(frozen=True)
class SourceTensor:
    """A matrix as it lies in the GGUF."""

    type: str  # GGUF's name of the block type: "Q4_1"
    offset: int  # bytes from the beginning of the file
    shape: tuple[int, int]  # rows, columns
    row_bytes: int
    interleaved_head_dim: int | None  # rows of heads of this size, in llama.cpp's order; None: in transformers' order


@dataclass(frozen=True)
class SourceRows:
    """A matrix of blocks, in the order of the converted tensor."""

    type: str
    shape: tuple[int, int]
    data: NDArray[np.uint8]  # [rows, bytes of a row], a view of the file
    order: NDArray[np.int64] | None  # row i of the tensor is row order[i] of the data


class SourceBlocks:
    """What of a model's tensors is still there in blocks. Empty for a model that was no GGUF."""

    def __init__(self, tensors: dict[str, SourceTensor], data: NDArray[np.uint8]) -> None:
        self._tensors = tensors
        self._data = data

    @classmethod
    def of(cls, model_dir: Path) -> SourceBlocks:
        """Of a model directory. A GGUF that went or changed since is a line in the log, and the table is not used."""
        table, source = model_dir / SOURCE_BLOCKS, model_dir / SOURCE_LINK
        if not table.exists():
            return cls({}, np.empty(0, np.uint8))
        try:
            document = json.loads(table.read_text(encoding="utf-8"))
            if source.stat().st_size != document["bytes"]:
                raise ValueError(f"its size is not the {document['bytes']} bytes that were converted")
            tensors = {name: _tensor(fields) for name, fields in document["tensors"].items()}
            return cls(tensors, np.memmap(source, np.uint8, mode="r"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            LOGGER.warning("the blocks of %s are not used, but its converted weights: %s", source, error)
            return cls({}, np.empty(0, np.uint8))

    def get(self, name: str) -> SourceRows | None:
        """The blocks of the converted tensor `name`; None if it was made of none."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return None
        rows = tensor.shape[0]
        data = self._data[tensor.offset : tensor.offset + rows * tensor.row_bytes].reshape(rows, tensor.row_bytes)
        head_dim = tensor.interleaved_head_dim
        order = None if head_dim is None else interleaved_to_halves(rows // head_dim, head_dim)
        return SourceRows(tensor.type, tensor.shape, data, order)


def table_document(size: int, tensors: dict[str, SourceTensor]) -> dict[str, Any]:
    """What `SOURCE_BLOCKS` holds, for a GGUF of `size` bytes."""
    return {"bytes": size, "tensors": {name: asdict(tensor) for name, tensor in tensors.items()}}


def interleaved_to_halves(heads: int, head_dim: int) -> NDArray[np.int64]:
    """For each row in transformers' order, its row in llama.cpp's: [heads * head_dim] int64.

    Row h·d + j·d/2 + i (half j, pair i) comes from h·d + 2·i + j. One head of 6: [0, 2, 4, 1, 3, 5].
    """
    pairs = np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2)
    return pairs.swapaxes(1, 2).reshape(-1)


def _tensor(fields: dict[str, Any]) -> SourceTensor:
    return SourceTensor(**{**fields, "shape": tuple(fields["shape"])})
