"""Writes a safetensors file tensor by tensor, so that no model ever has to fit into memory."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

_ALIGNMENT = 8  # the data starts at a multiple of it; the header is padded with spaces


def write_bfloat16(path: Path, shapes: Mapping[str, tuple[int, ...]], pieces: Iterable[np.ndarray]) -> None:
    """Write bfloat16 tensors of these names and shapes.

    `pieces` are uint16 arrays that, one after the other, are the tensors' elements in the order of `shapes`; a piece
    may be any part of a tensor. They are taken one by one, so memory is one piece. The file is on disk on return.
    """
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + 2 * math.prod(shape)
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for piece in pieces:
            file.write(np.ascontiguousarray(piece).data)
        if file.tell() != 8 + len(text) + offset:
            raise ValueError(f"{path}: {file.tell() - 8 - len(text)} bytes of tensors where the shapes say {offset}")
        file.flush()
        os.fsync(file.fileno())
