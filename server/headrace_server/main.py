"""`python -m headrace_server serve|prepare|warm …`: picks the command, and turns an expected failure into one line."""

import sys
from collections.abc import Sequence

from headrace_server.errors import HeadraceError, report

USAGE = """\
usage: python -m headrace_server serve …     serve one shard of a model over gRPC
       python -m headrace_server prepare …   turn a hub id, a directory or a .gguf file into a model directory
       python -m headrace_server warm …      compile a model's kernels for a GPU before its server starts
       (--help after each)"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the process's exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = arguments[0] if arguments else ""
    commands = {"serve": _serve, "prepare": _prepare, "warm": _warm}
    if command not in commands:
        asked_for_help = command in ("-h", "--help")
        print(USAGE, file=sys.stdout if asked_for_help else sys.stderr)
        return 0 if asked_for_help else 2
    try:
        return commands[command](arguments[1:])
    except HeadraceError as error:
        return report(error)


def _serve(argv: Sequence[str]) -> int:
    from headrace_server import flags, log, parent

    parsed = flags.parse_serve(argv)
    log.configure(parsed.json_output, parsed.rank if parsed.world_size > 1 else None)
    if parsed.parent_pid is not None:
        parent.exit_with(parsed.parent_pid, parsed.remove_socket)
    from headrace_server import serve

    return serve.run(parsed)


def _prepare(argv: Sequence[str]) -> int:
    from headrace_server.prepare import cli

    return cli.main(argv)


def _warm(argv: Sequence[str]) -> int:
    from headrace_server import log, warm

    log.configure(json_output=False)
    return warm.run(argv)
