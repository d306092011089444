"""Downloads a model from the Hugging Face hub, or finds it in the hub library's cache.

The hub is asked first, with a deadline, so that a branch that moved is noticed; when it can't be reached or refuses,
a complete copy in the cache serves, and a line on stderr says so. The small files come before the weights: a model that
can't be served is refused before gigabytes are fetched.
"""

from __future__ import annotations

import glob
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import huggingface_hub
from huggingface_hub import constants, errors

from headrace_server.prepare.checkpoint import check_config, check_directory, indexed_names
from headrace_server.prepare.errors import PrepareError
from headrace_server.prepare.progress import single_bar
from headrace_server.weights.index import INDEX, SINGLE

ANSWER_WITHIN = 8.0
"""Seconds that the hub has to answer the first question, name resolution and connecting included."""

_CONNECT_WITHIN = 5.0  # seconds for connecting, and for the answer's first byte; below ANSWER_WITHIN to be named itself

DOCUMENTS = (
    "config.json",
    "generation_config.json",
    "quantize_config.json",
    "quant_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "chat_template.jinja",
)
"""The files beside the weights that are fetched, as far as a repository has them."""

T = TypeVar("T")


def fetch(repo: str, revision: str | None, cache: Path) -> tuple[Path, str]:
    """The snapshot of `repo` at `revision` (default: main), and its commit sha.

    PrepareError when the repository can't be had or can't be served.
    """
    branch = revision or constants.DEFAULT_REVISION
    try:
        info = _within(
            ANSWER_WITHIN, lambda: huggingface_hub.HfApi().model_info(repo, revision=revision, timeout=_CONNECT_WITHIN)
        )
        files = [sibling.rfilename for sibling in info.siblings or []]
        directory = _download(repo, branch, cache, files)
    except errors.RevisionNotFoundError:
        raise PrepareError(f"{repo}: the hub has no revision {branch!r} of it; check --revision") from None
    except errors.HFValidationError as error:
        raise PrepareError(f"{repo}: not a valid hub id ({error}); check the spelling") from None
    except PrepareError:
        raise
    except Exception as error:
        if not _is_of_the_network(error):
            raise
        directory = _cached_instead(repo, branch, cache, error)
    check_directory(directory)
    return directory, directory.name


def _download(repo: str, branch: str, cache: Path, files: Sequence[str]) -> Path:
    weights = _weights_among(repo, files)
    for required, advice in (("config.json", "choose another model"), ("tokenizer.json", _NO_TOKENIZER)):
        if required not in files:
            raise PrepareError(f"{repo}: the repository has no {required}; {advice}")
    documents = [name for name in (*DOCUMENTS, INDEX) if name in files]
    directory = _snapshot(repo, branch, cache, documents)
    check_config(directory / "config.json")
    if INDEX in documents:
        weights = indexed_names(directory / INDEX)
    return _snapshot(repo, branch, cache, documents + [glob.escape(name) for name in weights])


_NO_TOKENIZER = "save its tokenizer in the fast form (transformers' save_pretrained writes it) in a local copy"


def _snapshot(repo: str, branch: str, cache: Path, patterns: Sequence[str], **options: Any) -> Path:
    bars = single_bar(f"Downloading {repo}")
    try:
        path = huggingface_hub.snapshot_download(
            repo,
            revision=branch,
            cache_dir=cache,
            allow_patterns=list(patterns),
            tqdm_class=bars,
            **options,
        )
    finally:
        bars.close_all()  # the library leaves that to the garbage collector, after our own last line
    return Path(path)


def _weights_among(repo: str, files: Sequence[str]) -> list[str]:
    """The weight files to fetch: those of transformers' naming; PrepareError when there are none."""
    weights = [name for name in files if "/" not in name and name.endswith(".safetensors")]
    if SINGLE in weights:
        return [SINGLE]
    if INDEX in files and weights:
        return weights  # its content, fetched first, says which of them
    if named := [name for name in weights if name.startswith("model")]:
        return named
    if ggufs := [name for name in files if name.endswith(".gguf")]:
        raise PrepareError(
            f"{repo}: the repository has GGUF files only; download one (such as {ggufs[0]}) and name the file"
        )
    if any(name.endswith((".bin", ".pt", ".pth")) for name in files):
        raise PrepareError(
            f"{repo}: the repository has PyTorch .bin weights only; convert them to safetensors, or choose a "
            "repository that has them"
        )
    raise PrepareError(f"{repo}: the repository has no model*.safetensors; choose another one")


def _cached_instead(repo: str, branch: str, cache: Path, error: Exception) -> Path:
    """The snapshot that an earlier run downloaded; PrepareError about `error` when there is no complete one."""
    reason = _explain(repo, error)
    try:
        # The documents came first, so a snapshot with all of its weights has them too.
        directory = _snapshot(repo, branch, cache, ["config.json", "tokenizer.json"], local_files_only=True)
        check_directory(directory)
    except (PrepareError, OSError):
        raise PrepareError(reason) from None
    print(f"warning: {reason}; serving the copy in {directory}", file=sys.stderr)
    return directory


def _is_of_the_network(error: Exception) -> bool:
    """Whether asking failed, and not this program: the hub library lets its HTTP library's errors through, and which
    library that is depends on its version."""
    libraries = {base.__module__.partition(".")[0] for base in type(error).__mro__}
    return isinstance(error, OSError) or bool(libraries & {"httpx", "httpx2", "requests"})


def _explain(repo: str, error: Exception) -> str:
    """What went wrong with the hub, in one sentence that says what to do."""
    endpoint = constants.ENDPOINT
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError) or status == 403:
        return (
            f"{repo}: the model is gated; accept its conditions at {endpoint}/{repo} and set HF_TOKEN to a token of "
            "that account"
        )
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 404):
        return (
            f"{repo}: the hub has no such model, or it is private; check the spelling, or set HF_TOKEN to a token that "
            "may read it"
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return f"{repo}: not in the hub's cache, and HF_HUB_OFFLINE is set; unset it, or name a local directory"
    if status is not None:
        return (
            f"{repo}: the hub at {endpoint} answered with status {status}; try again later, or name a local directory"
        )
    return (
        f"{repo}: the hub at {endpoint} can't be reached ({type(error).__name__}); check the network or HF_ENDPOINT, "
        "or name a local directory or a .gguf file"
    )


def _within(seconds: float, call: Callable[[], T]) -> T:
    """The result of `call`, or TimeoutError: name resolution knows no deadline of its own, so a thread waits for it."""
    results: list[T] = []
    failures: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:  # carried over to the caller
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:.0f} seconds")
    return results[0]
