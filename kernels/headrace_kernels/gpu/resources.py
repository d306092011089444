"""What a compiled kernel takes of a chip, read from its machine code; no GPU is needed."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton

SHARED_LIMIT = {
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_89": 99 * 1024,
    "sm_90": 227 * 1024,
    "sm_100": 227 * 1024,
    "sm_120": 99 * 1024,
}
"""Bytes of shared memory that one thread block may have: CUDA programming guide, compute capabilities."""


@dataclass(frozen=True)
class Resources:
    """Of one thread block of a kernel."""

    name: str
    warps: int
    registers: int  # a thread
    spilled: int  # bytes a thread that do not fit into registers
    shared: int  # bytes


def resources(kernel: Any) -> Resources:
    """Of triton's CompiledKernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        dump = subprocess.run(
            [_cuobjdump(), "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    usage = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|LOCAL):(\d+)", dump)}
    return Resources(
        kernel.metadata.name,
        kernel.metadata.num_warps,
        usage["REG"],
        usage["STACK"] + usage["LOCAL"],
        kernel.metadata.shared,
    )


def uses_tensor_cores(kernel: Any) -> bool:
    """Whether its PTX has matrix instructions of the tensor cores."""
    return bool(re.search(r"\b(mma|wgmma|tcgen05)\.", kernel.asm["ptx"]))


def _cuobjdump() -> str:
    return str(Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump")
