"""llama.cpp's server, compiled for this machine from the sources that llama-cpp-python carries."""

import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

from bench.cases import Weights
from bench.load import MODEL
from bench.peers.environment import REQUIREMENTS, command, create_environment, once, pip, require_program, require_space
from bench.peers.peer import Model, Served, Unavailable
from bench.peers.process import serving

# Rows of a batch, each with room for the longest request (1,028 tokens); the server rounds up to 256 anyway.
SLOTS = 48
CONTEXT = SLOTS * 1280
# Whole prompts of a step, as its manual advises for prompt speed; the default for both is smaller or the same.
BATCH = 2048
OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
# A part of the GGUF's name for each width, and what llama.cpp's own quantizer calls it; the embedded file is 4-bit.
TYPES = {Weights.BF16: "BF16", Weights.INT8: "Q8_0"}


class LlamaCpp:
    name = "llama.cpp"
    weights = frozenset(Weights)

    def install(self, home: Path, model: Model) -> str:
        if model.gguf is None:
            raise Unavailable(
                f"it reads GGUF, and {model.directory} was not converted from one; name a .gguf with --model"
            )
        place = _place(home)
        if not place.exists():
            require_space(home, 3)
            require_program("cmake")
            require_program("c++", "g++", "clang++")
        once(place, lambda: _build(place))
        for weights in TYPES:
            _quantized(home, model.gguf, weights)
        return f"llama.cpp of llama-cpp-python {_version()}, compiled here for this processor"

    def serve(self, home: Path, model: Model, weights: Weights, log: Path) -> AbstractContextManager[Served]:
        assert model.gguf is not None, "install refuses a model without one"
        threads = os.cpu_count() or 1
        words = [_place(home) / "llama-server", "--model", _quantized(home, model.gguf, weights), "--alias", MODEL]
        address = ["--host", "127.0.0.1", "--port", "{port}"]
        batch = ["--parallel", SLOTS, "--ctx-size", CONTEXT, "--cont-batching", "--batch-size", BATCH]
        compute = ["--threads", threads, "--threads-batch", threads, "--flash-attn", "on"]
        return serving([*words, *address, *batch, *compute], log)


def _version() -> str:
    line = next(line for line in _requirements().splitlines() if line.startswith("llama-cpp-python=="))
    return line.removeprefix("llama-cpp-python==")


def _requirements() -> str:
    return (REQUIREMENTS / "llama-cpp.txt").read_text()


def _place(home: Path) -> Path:
    return home / f"llama.cpp-{_version()}"


def _build(place: Path) -> None:
    """Keeps two programs of it. Its sources come with an environment's pip, whose own build is not run."""
    place.mkdir(parents=True)
    work = place / "work"
    python = create_environment(work / "venv")
    pip(python, "download", "--no-deps", "--no-binary", ":all:", "-r", REQUIREMENTS / "llama-cpp.txt", "-d", work)
    shutil.unpack_archive(next(work.glob("llama_cpp_python-*.tar.gz")), work, filter="data")
    source = next(work.glob("llama_cpp_python-*/vendor/llama.cpp"))
    command(["cmake", "-S", source, "-B", work / "build", *OPTIONS])
    programs = ("llama-server", "llama-quantize")
    command(["cmake", "--build", work / "build", "--parallel", os.cpu_count() or 1, "--target", *programs])
    for program in programs:
        shutil.move(work / "build" / "bin" / program, place / program)
    shutil.rmtree(work)


def _quantized(home: Path, gguf: Path, weights: Weights) -> Path:
    """The model with weights of this width. All are of the file's own, widened exactly where they are wider."""
    if weights not in TYPES:
        return gguf
    target = home / "gguf" / f"{gguf.stem}-{TYPES[weights]}.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        command([_place(home) / "llama-quantize", "--allow-requantize", gguf, part, TYPES[weights]])
        part.rename(target)
    return target
