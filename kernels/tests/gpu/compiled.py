"""Compiles kernels for chips that are absent, in a process of its own: the tests' own process interprets them.

python compiled.py MODULE:FUNCTION TARGET...    prints a JSON list, an object per kernel and target
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

TARGETS = ("sm_80", "sm_90", "sm_100")


@dataclass(frozen=True)
class Weighed:
    """One compiled kernel, and what a thread block of it takes."""

    target: str
    name: str
    warps: int
    registers: int  # a thread
    spilled: int  # bytes a thread
    shared: int  # bytes
    tensor_cores: bool

    def fits(self) -> bool:
        """Nothing spills, and the chip has the shared memory."""
        from headrace_kernels.gpu.resources import SHARED_LIMIT

        return self.spilled == 0 and self.shared <= SHARED_LIMIT[self.target]


all_weighed: list[Weighed] = []
"""Of this run of the tests, for what is printed at its end."""


def weigh(entry: str, *targets: str) -> list[Weighed]:
    """What `entry`, a "module:function" that calls operations on tensors of device "meta", launches on each target."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, __file__, entry, *(targets or TARGETS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kernels = [Weighed(**values) for values in json.loads(done.stdout)]
    for kernel in kernels:
        print(kernel)  # pytest shows it beside a failure, and with -s
    all_weighed.extend(kernels)
    return kernels


def table(kernels: Sequence[Weighed]) -> list[str]:
    """A line for each kernel: on each target the most that any of its variants takes."""
    lines = [f"{'':32}" + "".join(f"{target:>20}" for target in TARGETS)]
    for name in sorted({kernel.name for kernel in kernels}):
        cells = []
        for target in TARGETS:
            those = [kernel for kernel in kernels if (kernel.name, kernel.target) == (name, target)]
            registers = max((kernel.registers for kernel in those), default=0)
            shared = max((kernel.shared for kernel in those), default=0)
            cells.append(f"{registers} / {shared / 1024:.1f} KiB" if those else "-")
        lines.append(f"{name:32}" + "".join(f"{cell:>20}" for cell in cells))
    return lines


def _main(entry: str, targets: list[str]) -> None:
    from headrace_kernels.gpu.ahead import compiling
    from headrace_kernels.gpu.resources import resources, uses_tensor_cores

    module, function = entry.split(":")
    call = getattr(importlib.import_module(module), function)
    weighed = []
    for target in targets:
        with compiling(target) as compiled:
            call()
        weighed += [
            Weighed(target, **asdict(resources(kernel)), tensor_cores=uses_tensor_cores(kernel))
            for kernel in compiled.kernels
        ]
    json.dump([asdict(kernel) for kernel in weighed], sys.stdout)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    _main(sys.argv[1], sys.argv[2:])
