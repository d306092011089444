"""`python -m bench.machine`: what this machine can do at best, as one line of JSON. A process of its own, so that
neither torch nor its threads are in the one that measures.

Bandwidth: the best of several reads of 1 GiB, all threads. Products: with AMX what a plain kernel reaches a core, a
constant, since floors on machines with AMX must mean the same everywhere; without it the best of torch's own bfloat16
products of 2,048 x 2,048.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.floors import Machine

AMX_FLOPS_A_CORE = 0.95e12


def measure(python: Path) -> Machine:
    """In the environment of `python`, which has the kernels and torch."""
    command = [str(python), "-m", "bench.machine"]
    here = str(Path(__file__).resolve().parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return Machine(**json.loads(answer.stdout))


def describe() -> dict[str, Any]:
    """For those who read the figures elsewhere."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    field = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in info.splitlines()}
    flags = set(field.get("flags", "").split())
    sets = [name for name in ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8") if name in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": field.get("model name", "unknown"),
        "cores": os.cpu_count(),
        "instructions": sets,
        "memory_gib": round(memory / 2**30, 1),
    }


def _best_s(work: Callable[[], object], times: int) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def _measure_here() -> Machine:
    import torch

    from headrace_kernels import native

    threads = native.num_threads()
    read = native.Kernel("read_memory", native.POINTER, native.INT, native.INT32)
    memory = torch.ones(2**28)
    bandwidth = memory.nbytes / _best_s(lambda: read(memory.data_ptr(), memory.numel(), threads), 10)
    if "amx_bf16" in describe()["instructions"]:
        return Machine(bandwidth, AMX_FLOPS_A_CORE * threads)
    size = 2048
    left, right = torch.randn(2, size, size).to(torch.bfloat16)
    return Machine(bandwidth, 2 * size**3 / _best_s(lambda: left @ right, 10))


if __name__ == "__main__":
    json.dump(vars(_measure_here()), sys.stdout)
