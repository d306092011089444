"""The command line of `python -m headrace_server serve`, checked. Nothing else reads flags or environment."""

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headrace_server.distributed.rendezvous import Rendezvous
from headrace_server.errors import ConfigError
from headrace_server.layers.rope_parameters import STRETCHES, Stretch

DTYPES = ("float32", "bfloat16", "float16")
QUANTIZATIONS = ("int8", "int4", "fp8", "gptq", "awq", "compressed-tensors")
KV_CACHE_DTYPES = ("int8", "fp8_e4m3fn", "fp8_e5m2")
DEVICES = ("auto", "cpu", "cuda")
ATTENTION_BACKENDS = ("auto", "triton", "flashinfer", "fa3", "reference")
INVARIANT_BACKENDS = ("auto", "triton")
"""Those that --batch-invariant can be had with."""


@dataclass(frozen=True)
class ServeFlags:
    """How one shard process runs."""

    model_dir: Path
    address: str  # as gRPC names it: "unix:/run/shard-0" or "127.0.0.1:7000"
    rank: int
    world_size: int
    local_rank: int  # among the ranks on this machine
    local_world_size: int  # ranks on this machine
    rendezvous: Rendezvous | None  # where the ranks meet; None: this one is alone
    dtype: str | None  # None: bfloat16 where the hardware multiplies it, else float32
    quantize: str | None  # what linear layers' weights are or become, one of QUANTIZATIONS; None: as the checkpoint is
    attention_backend: str  # one of ATTENTION_BACKENDS
    batch_invariant: bool  # a sequence's bits depend on its own tokens only
    kv_cache_dtype: str | None  # None: the cache has the type dtype
    block_size: int | None  # tokens; None: the attention backend's choice
    num_threads: int
    device: str
    memory_fraction: float  # of a GPU's memory, for everything together
    cuda_graphs: tuple[int, ...] | None  # decode rows of each graph; None: what suits; empty: no graphs
    kernel_cache: Path  # where compiled GPU kernels are kept
    stretch: Stretch | None  # of the positions; None: as config.json says
    parent_pid: int | None  # this process ends when that one does
    owns_socket_directory: bool  # it was made for the socket alone, so it goes with it
    json_output: bool

    def remove_socket(self) -> None:
        """Leave nothing of the socket behind. What is gone already, or is not ours, is left alone."""
        if not self.address.startswith("unix:"):
            return
        socket = Path(self.address.removeprefix("unix:"))
        with suppress(OSError):
            socket.unlink(missing_ok=True)
            if self.owns_socket_directory:
                socket.parent.rmdir()  # only if it is empty


def parse_serve(argv: Sequence[str]) -> ServeFlags:
    """The flags of `serve`. Exits with usage on syntax errors; raises ConfigError on values that cannot work."""
    arguments = _parser().parse_args(argv)
    if not 0 <= arguments.rank < arguments.world_size:
        raise ConfigError(f"--rank {arguments.rank} is not below --world-size {arguments.world_size}")
    if arguments.block_size is not None and arguments.block_size < 1:
        raise ConfigError(f"--block-size {arguments.block_size} must be at least 1 token")
    if arguments.num_threads is not None and arguments.num_threads < 1:
        raise ConfigError(f"--num-threads {arguments.num_threads} must be at least 1")
    if not 0 < arguments.cuda_memory_fraction <= 1:
        raise ConfigError(f"--cuda-memory-fraction {arguments.cuda_memory_fraction} must be above 0 and at most 1")
    if arguments.batch_invariant and arguments.attention_backend not in INVARIANT_BACKENDS:
        raise ConfigError(
            f"--attention-backend {arguments.attention_backend}: what it computes for a sequence depends on the batch; "
            "take triton, or leave --batch-invariant out"
        )
    return ServeFlags(
        model_dir=arguments.model_dir,
        address=f"unix:{arguments.uds_path}" if arguments.uds_path else arguments.listen,
        rank=arguments.rank,
        world_size=arguments.world_size,
        local_rank=arguments.rank if arguments.local_rank is None else arguments.local_rank,
        local_world_size=arguments.local_world_size or arguments.world_size,
        rendezvous=_rendezvous(arguments),
        dtype=arguments.dtype,
        quantize=arguments.quantize,
        attention_backend=arguments.attention_backend,
        batch_invariant=arguments.batch_invariant,
        kv_cache_dtype=arguments.kv_cache_dtype,
        block_size=arguments.block_size,
        num_threads=arguments.num_threads or _threads(arguments.local_world_size or arguments.world_size),
        device=arguments.device,
        memory_fraction=arguments.cuda_memory_fraction,
        cuda_graphs=_graphs(arguments.cuda_graphs),
        kernel_cache=_kernel_cache(arguments.kernel_cache),
        stretch=_stretch(arguments),
        parent_pid=arguments.parent_pid,
        owns_socket_directory=arguments.uds_owner == "launcher",
        json_output=arguments.json_output,
    )


def _threads(sharers: int) -> int:
    """A rank's share of the cores: the ranks of a machine wait for one another, and too many threads wait long."""
    return max(len(os.sched_getaffinity(0)) // sharers, 1)


def _graphs(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if not all(number.strip().isdecimal() for number in text.split(",")):
        raise ConfigError(f"--cuda-graphs '{text}' must be numbers of rows, such as 1,2,4,8, or 0 for no graphs")
    return tuple(size for size in map(int, text.split(",")) if size)


def _rendezvous(arguments: argparse.Namespace) -> Rendezvous | None:
    if arguments.world_size == 1:
        return None
    if arguments.master_port is None:
        raise ConfigError(f"--world-size {arguments.world_size} needs --master-port: where the ranks meet")
    return Rendezvous(
        arguments.rank,
        arguments.world_size,
        arguments.master_addr,
        arguments.master_port,
        store_is_up=arguments.store_owner == "launcher",
        attempt=arguments.attempt,
    )


def use_kernel_cache(flags: ServeFlags) -> None:
    """Triton reads it when it compiles first."""
    os.environ["TRITON_CACHE_DIR"] = str(flags.kernel_cache)


def _kernel_cache(asked: Path | None) -> Path:
    if asked is None and (tritons := os.environ.get("TRITON_CACHE_DIR")):
        return Path(tritons)
    ours = Path(os.environ.get("HEADRACE_CACHE") or "~/.cache/headrace") / "kernels"
    return (asked or ours).expanduser().absolute()


def _stretch(arguments: argparse.Namespace) -> Stretch | None:
    if arguments.rope_scaling is None and arguments.rope_factor is None:
        return None
    factor = 1.0 if arguments.rope_factor is None else arguments.rope_factor
    if not 1 <= factor < float("inf"):
        raise ConfigError(f"--rope-factor {factor} must be at least 1")
    return Stretch(arguments.rope_scaling or "linear", factor)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m headrace_server serve", description="Serve one shard of a model over gRPC.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--model-dir", type=Path, required=True, help="directory with config.json and *.safetensors")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--uds-path", type=Path, help="Unix socket to create and listen on")
    where.add_argument(
        "--listen", metavar="HOST:PORT", help="TCP address to listen on instead; port 0 picks a free one"
    )
    add("--rank", type=int, default=0, help="this shard's place among those that hold one model (default 0)")
    add("--world-size", type=int, default=1, help="shards that hold one model together (default 1)")
    add("--local-rank", type=int, help="its place among those on this machine: which GPU it takes (default: the rank)")
    add("--local-world-size", type=int, help="ranks on this machine, which share its memory (default: all)")
    add("--master-addr", default="127.0.0.1", help="where rank 0 is, for the ranks to meet (default %(default)s)")
    add("--master-port", type=int, help="port on which rank 0 waits for the others")
    add(
        "--store-owner",
        choices=("rank-0", "launcher"),
        default="rank-0",
        help="launcher: whoever started the ranks keeps a store for them at --master-port, as torchrun does",
    )
    add("--attempt", type=int, default=0, help="how often that launcher has started these ranks again (default 0)")
    add("--dtype", choices=DTYPES, help="type of the forward pass (default: bfloat16 where the hardware multiplies it)")
    add(
        "--quantize",
        choices=QUANTIZATIONS,
        help="what weights of linear layers are or become (default: as the checkpoint is)",
    )
    add(
        "--attention-backend",
        choices=ATTENTION_BACKENDS,
        default="auto",
        help="who computes attention (default auto: on a GPU the fastest that is installed, on a CPU the C++ kernels)",
    )
    add(
        "--batch-invariant",
        action="store_true",
        help="a sequence gets the same bits alone and in any batch; slower on a GPU, and always so on a CPU",
    )
    add("--kv-cache-dtype", choices=KV_CACHE_DTYPES, help="type of cached keys and values (default: as --dtype)")
    add("--block-size", type=int, help="tokens of one KV block (default: 32 on a CPU, 16 elsewhere)")
    add(
        "--num-threads",
        type=int,
        help="threads of the forward pass on a CPU (default: the cores it may use, divided among the ranks here)",
    )
    add("--device", choices=DEVICES, default="auto", help="where tensors live (default auto: a GPU if there is one)")
    add(
        "--cuda-memory-fraction",
        type=float,
        default=1.0,
        help="share of a GPU's memory that weights, KV cache and computation may take together (default 1)",
    )
    add(
        "--cuda-graphs",
        metavar="ROWS,…",
        help="decode steps of so many rows are recorded as graphs; 0: none (default: what suits the largest batch)",
    )
    add(
        "--kernel-cache",
        type=Path,
        metavar="DIRECTORY",
        help="where compiled GPU kernels are kept (default: $TRITON_CACHE_DIR, else $HEADRACE_CACHE/kernels, else "
        "~/.cache/headrace/kernels)",
    )
    add("--rope-scaling", choices=STRETCHES, help="stretch the positions this way, whatever config.json says")
    add("--rope-factor", type=float, help="how many times the trained positions a sequence may have (default 1)")
    add(
        "--uds-owner",
        choices=("user", "launcher"),
        default="user",
        help="launcher: the socket's directory was made for it alone and is removed with it",
    )
    add("--parent-pid", type=int, help="exit when this process ends")
    add("--json-output", action="store_true", help="log JSON lines")
    return parser
