"""Which files a checkpoint consists of. No torch here: it is checked before torch loads."""

import json
from pathlib import Path

from headrace_server.errors import WeightsError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


def checkpoint_files(model_dir: Path) -> list[Path]:
    """The safetensors files of a model directory. Raises WeightsError if there is none, or one of them is missing."""
    index, single = model_dir / INDEX, model_dir / SINGLE
    if index.exists():
        files = _indexed(index)
    elif single.is_file():
        files = [single]  # whatever else lies beside it (such as consolidated.safetensors) holds the same weights again
    else:
        files = sorted(model_dir.glob("model*.safetensors"))
    if not files:
        raise WeightsError(f"{model_dir} holds no model*.safetensors file")
    if missing := [path for path in files if not path.is_file()]:
        raise WeightsError(f"{missing[0]} is missing, one of {len(files)} files that {INDEX} names; fetch it again")
    return files


def _indexed(index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{index} cannot be read: {error!r}") from None
    return [index.parent / name for name in sorted(names)]
