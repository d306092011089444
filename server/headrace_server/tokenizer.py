"""A shard computes with token ids alone. It knows of the tokenizer only which one it is, for a router that has its own
copy of the model's directory."""

import hashlib
from pathlib import Path


def sha256_of_tokenizer(model_dir: Path) -> str:
    """Of tokenizer.json, hexadecimal; empty where there is none that can be read."""
    try:
        with (model_dir / "tokenizer.json").open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
