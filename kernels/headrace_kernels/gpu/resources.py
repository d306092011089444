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

MOST_FUSED = 128
"""Multiplications and additions of a thread in a loop over keys, if they are the softmax's alone; a product that is not
the tensor cores' takes a thousand and more."""
_MATRIX = re.compile(r"\b(mma|wgmma\.mma_async|tcgen05\.mma)\.")
_FUSED = re.compile(r"\bfma\.rn\.f32")


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
    """Whether each loop over keys in its PTX, which is where exponentials are, leaves products to the tensor cores."""
    loops = [loop for loop in _innermost_loops(kernel.asm["ptx"]) if "ex2.approx" in loop]
    return bool(loops) and all(_MATRIX.search(loop) and len(_FUSED.findall(loop)) <= MOST_FUSED for loop in loops)


def _innermost_loops(ptx: str) -> list[str]:
    """What lies between each label and a branch back to it, without loops that hold another."""
    lines, labels, loops = ptx.splitlines(), dict[str, int](), list[range]()
    for at, line in enumerate(lines):
        if label := re.match(r"\s*(\$\w+):", line):
            labels[label[1]] = at
        elif (branch := re.search(r"\bbra(?:\.uni)?\s+(\$\w+);", line)) and branch[1] in labels:
            loops.append(range(labels[branch[1]], at))
    inner = [
        loop
        for loop in loops
        if not any(other != loop and other.start >= loop.start and other.stop <= loop.stop for other in loops)
    ]
    return ["\n".join(lines[loop.start : loop.stop]) for loop in inner]


def _cuobjdump() -> str:
    return str(Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump")
