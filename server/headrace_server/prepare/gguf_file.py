"""Reads a GGUF: its metadata as plain Python values, its tensors as views of the mapped file.

The `gguf` library parses; this module says what is wrong with a file in one line, before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader

from headrace_server.prepare.errors import PrepareError

_HEADER_BYTES = 24  # magic, version, tensor count, metadata count


@dataclass(frozen=True)
class GgufTensor:
    """One tensor as it lies in the file."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]  # elements, outermost axis first (GGUF itself stores them the other way round)
    offset: int  # bytes from the beginning of the file
    data: np.ndarray  # view of the file: [..., columns], or [..., bytes of a row] uint8 for block types and BF16


@dataclass(frozen=True)
class GgufFile:
    """A GGUF whose every tensor lies inside the file."""

    path: Path
    metadata: dict[str, Any]  # str, int, float, bool, or a list of them
    tensors: dict[str, GgufTensor]

    @property
    def architecture(self) -> str:
        """`general.architecture`, which is also the prefix of the keys that `get` and `require` read."""
        return str(self.metadata["general.architecture"])

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `{architecture}.{key}`."""
        return self.metadata.get(f"{self.architecture}.{key}", default)

    def require(self, key: str) -> Any:
        """The value of `{architecture}.{key}`; PrepareError if the file does not say."""
        value = self.get(key)
        if value is None:
            raise PrepareError(
                f"{self.path}: its metadata lacks {self.architecture}.{key}; convert the original model again"
            )
        return value


def read_gguf(path: Path) -> GgufFile:
    """Parse `path`. PrepareError for anything that is no whole, single, little-endian GGUF version 2 or 3.

    Memory: the library keeps a few small arrays per metadata element while it parses, about 200 MB for a vocabulary
    of 150,000 with its merges; all of them are gone when this returns.
    """
    _check_header(path)
    try:
        reader = _Reader(path)
        metadata = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, KeyError, IndexError, OverflowError, MemoryError) as error:
        raise PrepareError(f"{path}: this GGUF is truncated or damaged ({error}); download it again") from None
    if not isinstance(metadata.get("general.architecture"), str):
        raise PrepareError(f"{path}: its metadata lacks general.architecture; convert the original model again")
    if int(metadata.get("split.count") or 1) > 1:
        raise PrepareError(
            f"{path}: one of {metadata['split.count']} parts; join them first with llama.cpp's gguf-split --merge"
        )
    tensors = {
        tensor.name: GgufTensor(
            tensor.name,
            tensor.tensor_type,
            tuple(int(n) for n in reversed(tensor.shape.tolist())),
            int(tensor.data_offset),
            tensor.data,
        )
        for tensor in reader.tensors
    }
    return GgufFile(path, metadata, tensors)


class _Reader(GGUFReader):
    """The library's reader over a plain array: np.memmap's bookkeeping at each of 250,000 slices is half its time."""

    @property
    def data(self) -> np.ndarray:
        """The file's bytes."""
        return self._data

    @data.setter
    def data(self, mapped: np.memmap) -> None:
        self._data = np.asarray(mapped)


def _check_header(path: Path) -> None:
    with path.open("rb") as stream:
        header = stream.read(_HEADER_BYTES)
    if header[:4] != b"GGUF":
        raise PrepareError(f"{path}: not a GGUF file (it starts with {header[:4]!r}); check the path")
    if len(header) < _HEADER_BYTES:
        raise PrepareError(f"{path}: this GGUF is truncated after {len(header)} bytes; download it again")
    version = int.from_bytes(header[4:8], "little")
    if version & 0xFFFF == 0:
        raise PrepareError(f"{path}: a big-endian GGUF is not supported; convert the original model again")
    if version not in (2, 3):
        raise PrepareError(f"{path}: GGUF version {version} is not supported, 2 and 3 are; convert the model again")
