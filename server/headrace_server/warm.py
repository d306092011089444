"""`python -m headrace_server warm`: compiles, for a GPU that need not be there, all kernels that a model will use.

The model's steps run on tensors without numbers (`devices.absent`), and each kernel that they would launch is compiled
(`headrace_kernels.gpu.ahead`). What comes of it lies in Triton's cache directory, under the keys that a server on that
GPU asks for: it finds them all.
"""

import argparse
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from headrace_server.errors import ConfigError
from headrace_server.flags import ServeFlags, parse_serve, use_kernel_cache
from headrace_server.log import LOGGER
from headrace_server.memory import Limits
from headrace_server.models.registry import read_config
from headrace_server.runner import Runner
from headrace_server.warmup import warm_up

LIMITS = Limits(256, 4096, max_total_tokens=0, num_blocks=None, host_bytes=2**30)
"""Those of a GPU's usual server: kernels depend on no number of rows or tokens, but without host memory none swaps."""
MOST_TOKENS = 4096  # positions of the rehearsed pool


def run(argv: Sequence[str]) -> int:
    """Says what it compiled. Raises ConfigError if there is no such target, or none for which it can be done."""
    options, words = _parser().parse_known_args(argv)
    # Nobody listens, and no device is asked for.
    flags = parse_serve([*words, "--device", "cuda", "--listen", "127.0.0.1:0"])
    _check(flags)
    use_kernel_cache(flags)
    for target in _targets(options.target):
        began = time.monotonic()
        kernels = compile_for(target, flags, LIMITS, options.num_shard)
        print(
            f"{target}: {kernels} kernels of {flags.model_dir.name} in {time.monotonic() - began:.0f} s, "
            f"kept in {flags.kernel_cache}",
            flush=True,
        )
    return 0


def _targets(words: str) -> list[str]:
    """All are looked at before the first is compiled for. Raises ConfigError for one that is not known."""
    from headrace_kernels.gpu.ahead import TARGETS

    asked = list(dict.fromkeys(word.strip().lower() for word in words.split(",")))
    if unknown := [target for target in asked if target not in TARGETS]:
        raise ConfigError(f"--target {unknown[0]}: must be one of {', '.join(TARGETS)}")
    return asked


def _check(flags: ServeFlags) -> None:
    """Raises ConfigError for what has nothing to compile."""
    if flags.attention_backend == "reference":
        raise ConfigError("--attention-backend reference: it is plain torch, of which nothing is compiled")


def compile_for(target: str, flags: ServeFlags, limits: Limits, num_shard: int = 1) -> int:
    """How many variants of kernels a server with these flags uses there; they are all compiled now."""
    import torch

    from headrace_kernels.gpu.ahead import compiling
    from headrace_server.devices.absent import AbsentDevice
    from headrace_server.distributed.absent import AbsentRanks
    from headrace_server.load import torch_compute
    from headrace_server.weights.invented import InventedCheckpoint

    config = read_config(flags.model_dir, flags.stretch)
    device = AbsentDevice()
    checkpoint = InventedCheckpoint(getattr(torch, flags.dtype or "bfloat16"), device.torch_device)
    with compiling(target) as compiled:
        for rank in range(num_shard):  # their parts may differ in size
            compute = torch_compute(flags, config, checkpoint, device, AbsentRanks(rank, num_shard))
            _rehearse(Runner(compute), limits)
    return len(compiled.kernels)


def _rehearse(runner: Runner, limits: Limits) -> None:
    with _hushed():
        warm_up(runner, replace(limits, max_total_tokens=min(MOST_TOKENS, runner.config.max_positions)))
        while runner.improve():
            pass


@contextmanager
def _hushed() -> Iterator[None]:
    """What a server says of its memory and of how long a step takes is invented here."""
    level = LOGGER.level
    LOGGER.setLevel(logging.WARNING)
    try:
        yield
    finally:
        LOGGER.setLevel(level)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m headrace_server warm",
        description="Compile a model's GPU kernels before its server starts. Also takes the flags of serve.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--target", default="sm_90", metavar="CHIP,…", help="sm_80, sm_86, sm_89, sm_90, sm_100, sm_120 (default sm_90)"
    )
    parser.add_argument(
        "--num-shard", type=int, default=1, help="ranks that hold the model together; each has kernels of its sizes"
    )
    return parser
