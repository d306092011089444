"""`text-generation-server`: Text Generation Inference's shard program, its commands in this package's terms.

`serve` prepares the model and serves one shard of it; where `text-generation-router` looks for it is
`--uds-path`-RANK. `download-weights` prepares the model and prints its directory. What has no effect here is accepted
with one warning, and what cannot be done says so in one line.
"""

import argparse
import os
import sys
from argparse import BooleanOptionalAction
from collections.abc import Mapping, Sequence

from headrace_server.errors import ConfigError, HeadraceError, report

NO_EFFECT = {
    "sharded": "the variable WORLD_SIZE says how many shards there are",
    "speculate": "tokens are computed one by one",
    "trust_remote_code": "no code of a model repository is ever run",
    "otlp_endpoint": "spans of this process are made by the router",
    "max_input_tokens": "the router says how long a prompt may be",
    "extension": "weights are read from safetensors and GGUF files",
    "auto_convert": "PyTorch's own files are never converted; they can run code",
    "merge_lora": "no adapters are merged in this version",
}
"""Flags that change nothing, by argparse's name, and why."""


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line; returns the process's exit code."""
    arguments = _parser().parse_args(argv)
    for name, why in NO_EFFECT.items():
        if getattr(arguments, name, None):
            print(f"warning: --{name.replace('_', '-')} has no effect: {why}", file=sys.stderr)
    try:
        return int(arguments.run(arguments, environ))
    except HeadraceError as error:
        return report(error)


def _serve(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from headrace_server import flags, log

    model_dir = _prepare(arguments, environ)
    if isinstance(model_dir, int):
        return model_dir
    rank, world_size = environ.get("RANK", "0"), environ.get("WORLD_SIZE", "1")
    words = ["--model-dir", model_dir, "--uds-path", f"{arguments.uds_path}-{rank}"]
    words += ["--rank", rank, "--world-size", world_size, *_meeting(environ)]
    if arguments.dtype:
        words += ["--dtype", arguments.dtype]
    if arguments.quantize in flags.QUANTIZATIONS:
        words += ["--quantize", arguments.quantize]
    elif arguments.quantize:
        print(
            f"warning: --quantize {arguments.quantize} has no effect: weights are kept in the type of --dtype; "
            "on a CPU int8 and int4 make them smaller",
            file=sys.stderr,
        )
    if arguments.kv_cache_dtype not in (None, "auto"):
        words += ["--kv-cache-dtype", arguments.kv_cache_dtype]
    if arguments.json_output:
        words.append("--json-output")
    parsed = flags.parse_serve(words + _memory_and_positions(environ))
    log.configure(parsed.json_output)
    from headrace_server import serve

    return serve.run(parsed)


def _meeting(environ: Mapping[str, str]) -> list[str]:
    """Where several ranks meet; by torch's names, and its port where none is said."""
    if environ.get("WORLD_SIZE", "1") == "1":
        return []
    host, port = environ.get("MASTER_ADDR", "127.0.0.1"), environ.get("MASTER_PORT", "29500")
    return ["--master-addr", host, "--master-port", port]


def _memory_and_positions(environ: Mapping[str, str]) -> list[str]:
    """What the launcher tells its shards by variables."""
    names = {
        "CUDA_MEMORY_FRACTION": "--cuda-memory-fraction",
        "CUDA_GRAPHS": "--cuda-graphs",
        "ROPE_SCALING": "--rope-scaling",
        "ROPE_FACTOR": "--rope-factor",
    }
    return [word for name, flag in names.items() if environ.get(name) for word in (flag, environ[name])]


def _download_weights(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    model_dir = _prepare(arguments, environ)
    if isinstance(model_dir, int):
        return model_dir
    print(model_dir)
    return 0


def _quantize(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    raise ConfigError(
        "quantize: no checkpoint is written here; `serve --quantize int8` quantizes while it loads, and a method's own "
        "tool writes one"
    )


def _prepare(arguments: argparse.Namespace, environ: Mapping[str, str]) -> str | int:
    """The model's directory, or the exit status after an error line."""
    from headrace_server.prepare import cli

    words = ["--model-id", arguments.model_id]
    if arguments.revision:
        words += ["--revision", arguments.revision]
    prepared = cli.attempt(words, environ)
    return prepared if isinstance(prepared, int) else prepared.model_dir


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="text-generation-server", description="Text Generation Inference's commands, done by Headrace."
    )
    commands = parser.add_subparsers(required=True, metavar="serve|download-weights|quantize")
    serve = _command(commands, "serve", "serve one shard of a model", _serve)
    serve.add_argument("--sharded", action=BooleanOptionalAction)
    serve.add_argument("--quantize")
    serve.add_argument("--speculate", type=int)
    serve.add_argument("--dtype", choices=("float16", "bfloat16", "float32"))
    serve.add_argument("--kv-cache-dtype")
    serve.add_argument(
        "--uds-path", default="/tmp/text-generation-server", help="prefix of the socket (default %(default)s)"
    )
    serve.add_argument("--otlp-endpoint")
    serve.add_argument("--otlp-service-name")
    serve.add_argument("--max-input-tokens", type=int)
    download = _command(commands, "download-weights", "prepare a model and print its directory", _download_weights)
    download.add_argument("--extension")
    download.add_argument("--auto-convert", action=BooleanOptionalAction)
    download.add_argument("--merge-lora", action=BooleanOptionalAction)
    quantize = _command(commands, "quantize", "not available", _quantize)
    quantize.add_argument("output_dir", nargs="?")
    for name in ("--upload-to-model-id", "--percdamp", "--groupsize", "--bits"):
        quantize.add_argument(name)
    quantize.add_argument("--act-order", action=BooleanOptionalAction)
    return parser


def _command(commands: "argparse._SubParsersAction", name: str, text: str, run: object) -> argparse.ArgumentParser:
    """With the flags that all of them have."""
    command = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    command.set_defaults(run=run)
    command.add_argument("model_id", help="a hub id, a directory, a .gguf file or `embedded`")
    command.add_argument("--revision")
    command.add_argument("--logger-level", default="INFO")
    command.add_argument("--json-output", action=BooleanOptionalAction)
    command.add_argument("--trust-remote-code", action=BooleanOptionalAction)
    return command


if __name__ == "__main__":
    sys.exit(main())
