"""Which files a checkpoint consists of. No torch here: it is checked before torch loads."""

import json
from pathlib import Path

from headrace_server.errors import WeightsError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
SOURCE_LINK = "source.gguf"
"""Link in a directory that was converted from a GGUF, to that file."""
SOURCE_BLOCKS = "source-blocks.json"
"""Beside it: where in the GGUF each tensor's quantized blocks lie. `source_blocks` reads it."""


def checkpoint_files(model_dir: Path) -> list[Path]:
    """The safetensors files of a model directory. Raises WeightsError if there is none, or one of them is missing."""
    index = model_dir / INDEX
    files = _indexed(index) if index.exists() else unindexed_files(model_dir)
    if not files:
        raise WeightsError(f"{model_dir} holds no model*.safetensors file")
    if missing := [path for path in files if not path.is_file()]:
        raise WeightsError(f"{missing[0]} is missing, one of {len(files)} files that {INDEX} names; fetch it again")
    return files


def unindexed_files(model_dir: Path) -> list[Path]:
    """The weight files of a directory without an index: the single one, else every model*.safetensors, sorted.

    Whatever else lies beside the single one (such as consolidated.safetensors) holds the same weights again.
    """
    single = model_dir / SINGLE
    return [single] if single.is_file() else sorted(model_dir.glob("model*.safetensors"))


def _indexed(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{index} cannot be read: {error!r}") from None
    return [index.parent / name for name in sorted(names)]
