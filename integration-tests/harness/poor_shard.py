"""A shard that the system gives only so much more memory once its model is loaded: `poor_shard.py MIB serve …`. All
else is the real one."""

import mmap
import resource
import sys
from pathlib import Path

from headrace_server import load, main, signals
from headrace_server.flags import ServeFlags
from headrace_server.models.config import ModelConfig
from headrace_server.runner import Runner


def limited_to(more: int) -> None:
    """So many bytes of addresses more than there are when the model is loaded."""
    load_runner = load.load_runner

    def load_and_limit(flags: ServeFlags, config: ModelConfig) -> Runner:
        runner = load_runner(flags, config)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (held + more, resource.RLIM_INFINITY))
        return runner

    load.load_runner = load_and_limit


if __name__ == "__main__":
    signals.end_quietly(0)
    limited_to(int(sys.argv[1]) * 2**20)
    sys.exit(main.main(sys.argv[2:]))
