"""Ranks that Ray places: `python -m headrace_server.ray --num-shard 2 --model-dir DIR`.

A placement group reserves a GPU, or cores, for each rank, and an actor there runs `python -m headrace_server serve` as
its child, which ends with it. What a router needs to find them is printed. Every other flag is one of `serve`.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace_server.errors import ConfigError, HeadraceError, LostRank, report

PATIENCE_SECONDS = 600.0  # for machines with room


@dataclass(frozen=True, slots=True)
class RayFlags:
    """What to place, and where."""

    num_shard: int
    address: str | None  # of a cluster; None: one on this machine, for as long as this runs
    strategy: str  # Ray's word for how near to each other the ranks should be
    device: str
    num_threads: int  # of a rank
    model_dir: str
    rest: list[str]  # flags of `serve`


class Rank:
    """The actor: it finds a place for its rank, then runs it."""

    def place(self, local: bool) -> tuple[str, int, int]:
        """(host, a port for the router, a port for the ranks to meet)."""
        import ray

        host = "127.0.0.1" if local else ray.util.get_node_ip_address()
        return host, *free_ports(host)

    def serve(self, words: list[str]) -> int:
        """Until the rank ends; its exit status. What it logs is this process's log, which Ray shows."""
        command = [sys.executable, "-m", "headrace_server", "serve", *words, "--parent-pid", str(os.getpid())]
        return subprocess.run(command, stdin=subprocess.DEVNULL).returncode


def main(argv: Sequence[str] | None = None) -> int:
    """Place all ranks, and stay until one ends or somebody ends this; returns the process's exit code."""
    try:
        return _run(_parse(sys.argv[1:] if argv is None else argv))
    except HeadraceError as error:
        return report(error)
    except KeyboardInterrupt:
        return 0


def _run(flags: RayFlags) -> int:
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "ranks are placed by Ray, which is not installed here; pip install 'headrace-server[ray]'"
        ) from None
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray's processes on this machine are to end in order
    if flags.address is None:
        ray.init(num_cpus=flags.num_shard * flags.num_threads, include_dashboard=False)
    else:
        ray.init(address=flags.address)
    try:
        return _serve(flags)
    finally:
        ray.shutdown()


def _serve(flags: RayFlags) -> int:
    import ray

    bundle = _bundle(flags)
    group = _reserve(flags, bundle)
    actors = [_actor(bundle, group, index) for index in range(flags.num_shard)]
    places = ray.get([actor.place.remote(flags.address is None) for actor in actors])
    (master, _, meeting), *_ = places
    neighbours = Counter(host for host, _, _ in places)
    running = {}
    for rank, (actor, (host, port, _)) in enumerate(zip(actors, places, strict=True)):
        words = ["--listen", f"{host}:{port}", "--rank", str(rank), "--world-size", str(flags.num_shard)]
        # Ray shows an actor just its own GPU, but all of the machine's memory.
        words += ["--local-rank", "0", "--local-world-size", str(neighbours[host])]
        words += ["--master-addr", master, "--master-port", str(meeting), "--model-dir", flags.model_dir]
        words += ["--device", flags.device, "--num-threads", str(flags.num_threads), *flags.rest]
        running[actor.serve.remote(words)] = rank
    shards = ",".join(f"{host}:{port}" for host, port, _ in places)
    print(f"headrace router --model-id {flags.model_dir} --shards {shards}", flush=True)
    # Ranks that end because of another one take a moment longer than that one.
    (ended, *_), _ = ray.wait(list(running), num_returns=1)
    raise LostRank(f"rank {running[ended]} ended {_how(ended)}, and the others with it")


def _how(ended: Any) -> str:
    import ray

    try:
        return f"with exit status {ray.get(ended)}"
    except ray.exceptions.RayError as error:
        return f"as Ray tells: {str(error).splitlines()[0]}"


def _bundle(flags: RayFlags) -> dict[str, float]:
    """What a rank takes of a machine."""
    import ray

    on_gpu = flags.device != "cpu" and ray.cluster_resources().get("GPU", 0) >= 1
    return {"GPU": 1, "CPU": 1} if on_gpu else {"CPU": flags.num_threads}


def _reserve(flags: RayFlags, bundle: dict[str, float]) -> Any:
    import ray
    from ray.util.placement_group import placement_group

    group = placement_group([bundle] * flags.num_shard, strategy=flags.strategy)
    ready, _ = ray.wait([group.ready()], timeout=PATIENCE_SECONDS)
    if not ready:
        raise ConfigError(
            f"Ray found no room for {flags.num_shard} ranks of {bundle} within {PATIENCE_SECONDS:.0f} s; it has "
            f"{ray.cluster_resources()}: lower --num-shard or add machines"
        )
    return group


def _actor(bundle: dict[str, float], group: Any, index: int) -> Any:
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    where = PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index)
    actor = ray.remote(Rank).options(num_cpus=bundle["CPU"], num_gpus=bundle.get("GPU", 0), scheduling_strategy=where)
    return actor.remote()


def free_ports(host: str) -> tuple[int, int]:
    """Two, both held until both are known: otherwise they could be one."""
    with socket.socket() as first, socket.socket() as second:
        for probe in (first, second):
            probe.bind((host, 0))
        return first.getsockname()[1], second.getsockname()[1]


def _parse(argv: Sequence[str]) -> RayFlags:
    parser = argparse.ArgumentParser(
        prog="python -m headrace_server.ray",
        description="Place the ranks of a model with Ray. Other flags are those of `python -m headrace_server serve`.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model-dir", required=True, help="directory with config.json and *.safetensors, on every machine")
    add("--num-shard", type=int, required=True, help="ranks")
    add("--ray-address", help="of the cluster, such as auto (default: start one on this machine)")
    add("--strategy", choices=("PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"), default="PACK", help="of the group")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where tensors live (default %(default)s)")
    add("--num-threads", type=int, default=1, help="threads of a rank on a CPU (default %(default)s)")
    known, rest = parser.parse_known_args(argv)
    if known.num_shard < 1 or known.num_threads < 1:
        raise ConfigError("--num-shard and --num-threads must be at least 1")
    return RayFlags(
        known.num_shard, known.ray_address, known.strategy, known.device, known.num_threads, known.model_dir, rest
    )


if __name__ == "__main__":
    sys.exit(main())
