"""Checks a model directory before anything is started on it, without reading a single weight.

A few file headers are enough to know that every weight file is there and whole, so that the error comes now, as one
line, and not from the depths of a loader a minute later.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from headrace_server.architectures import MODEL_TYPES
from headrace_server.errors import ConfigError
from headrace_server.fields import Fields
from headrace_server.prepare.errors import PrepareError
from headrace_server.quantization.read_stored import read_stored
from headrace_server.weights.index import INDEX, SINGLE, unindexed_files

# A header of a large model is about 100 kB; the format's own limit is this.
_MAX_HEADER = 100_000_000


def check_directory(directory: Path) -> None:
    """Raise PrepareError, naming the file, unless `directory` holds a complete model of a known architecture."""
    check_config(directory / "config.json")
    for file in weight_files(directory):
        check_safetensors(file)
    _check_tokenizer(directory / "tokenizer.json")


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files that together hold the weights: those the index names, else every model*.safetensors."""
    index = directory / INDEX
    if index.is_file():
        return _indexed_files(index)
    files = unindexed_files(directory)
    if not files:
        raise PrepareError(_why_no_weights(directory))
    return files


def check_safetensors(file: Path) -> None:
    """Raise PrepareError if `file` is no safetensors file or shorter or longer than its header says."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= min(_MAX_HEADER, size - 8):
            raise PrepareError(f"{file}: not a whole safetensors file ({size} bytes); download it again")
        header = stream.read(length)
    try:
        tensors = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
        expected = 8 + length + max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise PrepareError(f"{file}: its safetensors header is damaged; download it again") from None
    if size != expected:
        raise PrepareError(f"{file}: has {size} bytes and should have {expected}; download it again")


def check_config(path: Path) -> None:
    """Raise PrepareError unless the config.json at `path` is of a model that the runtime can compute."""
    config = read_json_object(path, missing="this directory holds no model; name one that has config.json")
    model_type = config.get("model_type")
    if model_type not in MODEL_TYPES:
        raise PrepareError(
            f"{path}: the architecture {model_type!r} is not supported; supported are {', '.join(MODEL_TYPES)}"
        )
    try:
        read_stored(path.parent, Fields(config, path.name))
    except ConfigError as error:
        raise PrepareError(f"{path.parent}: {error}") from None


def _check_tokenizer(path: Path) -> None:
    tokenizer = read_json_object(
        path, missing="missing; save the tokenizer in its fast form (transformers' save_pretrained writes it)"
    )
    if not isinstance(tokenizer.get("model"), dict):
        raise PrepareError(f"{path}: has no tokenizer model in it; copy it again from where the model came from")


def read_json_object(path: Path, missing: str) -> dict[str, Any]:
    """The JSON object in `path`; PrepareError with `missing` as its advice when there is no such file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise PrepareError(f"{path}: {missing}") from None
    except (ValueError, RecursionError) as error:
        raise PrepareError(f"{path}: not valid JSON ({error}); copy it again") from None
    if not isinstance(content, dict):
        raise PrepareError(f"{path}: holds no JSON object; copy it again")
    return content


def indexed_names(index: Path) -> list[str]:
    """The weight files that the index at this path names, sorted; PrepareError when it is none."""
    weight_map = read_json_object(index, missing="missing").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise PrepareError(f"{index}: has no weight_map; copy it again")
    return sorted(set(map(str, weight_map.values())))


def _indexed_files(index: Path) -> list[Path]:
    files = [index.parent / name for name in indexed_names(index)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise PrepareError(
            f"{index.parent / missing[0]}: missing ({len(missing)} of the {len(files)} weight files that {INDEX} names "
            "are); download the model again"
        )
    return files


def _why_no_weights(directory: Path) -> str:
    names = [entry.name for entry in directory.iterdir()]
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        return (
            f"{directory}: has PyTorch .bin weights only; convert them to safetensors (transformers' "
            "save_pretrained(…, safe_serialization=True)) or name a repository that has them"
        )
    if ggufs := sorted(name for name in names if name.endswith(".gguf")):
        return f"{directory}: has GGUF files only; name one of them, such as {directory / ggufs[0]}"
    return f"{directory}: has no {SINGLE} and no {INDEX}; download the weights"
