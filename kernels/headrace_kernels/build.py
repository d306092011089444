"""Builds the C++ library of the CPU kernels: `python -m headrace_kernels.build`, or this file run by itself.

Every operation's `cpu.cpp` is compiled once per instruction set, then all are linked to one library over plain
pointers. It needs a C++17 compiler (`$CXX`, g++, clang++ or c++) and neither torch nor Python headers. It does nothing
when the library was built from the sources as they are. This module imports nothing of the package, so that the
wheel's build can use it where torch is missing.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PACKAGE = Path(__file__).parent
LIBRARY = PACKAGE / "cpu" / "libheadrace_cpu.so"
EMULATED_LIBRARY = PACKAGE / "cpu" / "libheadrace_cpu_emulated.so"

COMMON_FLAGS = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    # A product and a sum are fused where the source says so, and nowhere else: bits must not depend on inlining.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
]

AVX512_FLAGS = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"]
VNNI_FLAGS = [*AVX512_FLAGS, "-mavx512vnni"]
DOT_FLAGS = [*VNNI_FLAGS, "-mavx512bf16"]

X86_FLAGS = {
    "baseline": ["-msse4.2"],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": AVX512_FLAGS,
    "avx512_vnni": VNNI_FLAGS,
    "avx512_bf16": DOT_FLAGS,
    "amx": [*DOT_FLAGS, "-mamx-tile", "-mamx-bf16", "-mamx-int8"],
}
"""The plainest first: a machine that has one has those before it."""


class BuildError(Exception):
    """The library could not be built; the message says why and what to do."""


def instruction_sets() -> dict[str, list[str]]:
    """What this machine's processor family is compiled for: name to compiler flags."""
    return X86_FLAGS if platform.machine() in ("x86_64", "AMD64") else {"baseline": []}


def is_current(library: Path = LIBRARY) -> bool:
    """Whether the library exists and was built from the sources as they are now."""
    return library.exists() and f"headrace-sources:{fingerprint()}".encode() in library.read_bytes()


def build(library: Path = LIBRARY, *, emulated: bool = False) -> Path:
    """Compile and link `library`; a library that is in use is replaced, not written over.

    emulated  instead of what processors run: the AMX kernels with tiles in plain C++, which every machine can test
    """
    compiler = find_compiler()
    started = time.monotonic()
    jobs = _compile_jobs({"amx_emulated": ["-DHEADRACE_EMULATE_AMX"]} if emulated else instruction_sets())
    print(f"headrace-kernels: compiling {len(jobs)} files with {' '.join(compiler)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="headrace-kernels-") as directory:
        objects = [str(Path(directory) / f"{i}.o") for i in range(len(jobs))]
        commands = [[*compiler, *job, "-o", obj] for job, obj in zip(jobs, objects, strict=True)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(_run, commands))
        library.parent.mkdir(parents=True, exist_ok=True)
        fresh = library.with_suffix(f".{os.getpid()}.tmp")
        _run([*compiler, "-shared", "-pthread", "-Wl,--as-needed", "-o", str(fresh), *objects])
        fresh.replace(library)
    print(f"headrace-kernels: built {library} in {time.monotonic() - started:.1f} s", flush=True)
    return library


def find_compiler() -> list[str]:
    """The C++ compiler's command: `$CXX`, or the first of the usual names that exists."""
    candidates = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    for candidate in candidates:
        command = shlex.split(candidate)
        if shutil.which(command[0]):
            return command
    raise BuildError(
        f"no C++ compiler found (tried {', '.join(candidates)}): install one, e.g. `apt install g++`, or set CXX"
    )


def fingerprint() -> str:
    """A short hash of everything the library is built from."""
    digest = hashlib.sha256()
    for path in sorted([*PACKAGE.rglob("*.cpp"), *PACKAGE.rglob("*.h"), Path(__file__)]):
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile_jobs(sets: dict[str, list[str]]) -> list[list[str]]:
    """Compiler arguments, one job an object file: shared code once, each operation once per instruction set."""
    runtime = PACKAGE / "cpu" / "runtime.cpp"
    plain = next(iter(sets.values()))
    jobs = [[*COMMON_FLAGS, *plain, f'-DHEADRACE_FINGERPRINT="{fingerprint()}"', "-c", str(runtime)]]
    for isa, flags in sets.items():
        shared = [PACKAGE / "cpu" / name for name in ("product.cpp", "bandwidth.cpp")]
        for source in [*sorted(PACKAGE.glob("*/cpu.cpp")), *shared]:
            jobs.append([*COMMON_FLAGS, *flags, f"-DHEADRACE_ISA={isa}", "-c", str(source)])
    return jobs


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise BuildError(f"`{shlex.join(command)}` failed with exit status {done.returncode}")


def main() -> int:
    """Build if needed; 1 and one line on stderr if that is not possible."""
    if is_current():
        print(f"headrace-kernels: {LIBRARY} is up to date")
        return 0
    try:
        build()
    except BuildError as error:
        print(f"headrace-kernels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
