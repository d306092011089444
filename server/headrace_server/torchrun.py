"""Ranks that torchrun starts:

    torchrun --nproc-per-node 2 -m headrace_server.torchrun --model-dir DIR --listen HOST:PORT

torchrun tells each process by variables which rank it is and where all of them meet. Every other flag is one of
`python -m headrace_server serve`, but addresses are those of a machine's first rank: the others listen on the ports
after PORT, or with `--uds-path PREFIX` on the socket PREFIX-RANK.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence

from headrace_server import signals
from headrace_server.errors import ConfigError, HeadraceError, report

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Serve one rank; returns the process's exit code."""
    from headrace_server import flags, log, serve

    try:
        parsed = flags.parse_serve(serve_words(sys.argv[1:] if argv is None else argv, environ))
        log.configure(parsed.json_output, parsed.rank)
        return serve.run(parsed)
    except HeadraceError as error:
        return report(error)


def serve_words(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The flags of this rank's `serve`. Raises ConfigError outside of torchrun."""
    if missing := [name for name in VARIABLES if name not in environ]:
        raise ConfigError(f"{missing[0]} is not set; start this with torchrun --nproc-per-node RANKS")
    rank, world_size, local_rank, local_world_size, host, port = (environ[name] for name in VARIABLES)
    parser = argparse.ArgumentParser(prog="torchrun -m headrace_server.torchrun", allow_abbrev=False, add_help=False)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--listen", metavar="HOST:PORT")
    where.add_argument("--uds-path", metavar="PREFIX")
    first, rest = parser.parse_known_args(argv)
    place = ["--rank", rank, "--world-size", world_size, "--local-rank", local_rank]
    place += ["--local-world-size", local_world_size]
    meeting = ["--master-addr", host, "--master-port", port]
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        meeting += ["--store-owner", "launcher", "--attempt", environ.get("TORCHELASTIC_RESTART_COUNT", "0")]
    return [*rest, *_listening(first, rank, local_rank), *place, *meeting]


def _listening(first: argparse.Namespace, rank: str, local_rank: str) -> list[str]:
    if first.uds_path is not None:
        return ["--uds-path", f"{first.uds_path}-{rank}"]
    host, _, port = first.listen.rpartition(":")
    if not port.isdecimal() or port == "0":
        raise ConfigError(f"--listen {first.listen} must be HOST:PORT, the port of the first rank on this machine")
    return ["--listen", f"{host}:{int(port) + int(local_rank)}"]


if __name__ == "__main__":
    signals.end_quietly(0)
    sys.exit(main())
