"""Steps take no memory from the system: what the largest one needed is there for all others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace_kernels import build

TESTS = Path(__file__).parent
STEPS = """
import ctypes, sys
import numpy as np
from decoder_world import Shape, World, tokens
from headrace_kernels import native
from headrace_kernels.quantized_linear import Kind
from headrace_kernels.sample_tokens import sample_tokens
from sampling_rows import columns_of

count = ctypes.c_int64.in_dll(ctypes.CDLL(sys.argv[1]), "kernel_allocations")
native.set_num_threads(2)
world = World({shape}, [tokens(700, 0), tokens(600, 1), *(tokens(130 + row, row) for row in range(2, 20))])
world.step({{0: 600, 1: 10, **dict.fromkeys(range(2, 20), 20)}})
sampled = columns_of(*[{{"temperature": 1, "top_k": 40, "top_p": 0.9, "logprobs": True, "top_n": 3}}] * 20)


def sample(logits):
    return sample_tokens(logits, np.arange(len(logits)), np.arange(len(logits)), sampled)


print("before", count.value)
everybody = world.step(dict.fromkeys(range(20), 1), whole=False)
sample(everybody)
for _ in range(10):  # a thread that had no core so far takes its own memory at its first turn
    warm = count.value
    for step in range(9):
        logits = world.step({{0: 1, 1: 1 + 5 * (step % 3), **dict.fromkeys(range(2, 4 + 2 * step), 1)}}, whole=False)
        sample(logits)
    if count.value == warm:
        break
print("after", count.value - warm)
"""


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library to preload."""
    library = tmp_path_factory.mktemp("counter") / "count_allocations.so"
    words = ["-O1", "-std=c++17", "-shared", "-fPIC", str(TESTS / "count_allocations.cpp"), "-o", str(library), "-ldl"]
    subprocess.run([*build.find_compiler(), *words], check=True, timeout=120)
    return library


@pytest.mark.parametrize(
    "shape",
    [
        "Shape()",
        "Shape(dtype=native.BFLOAT16, windows=(13, None), biases=True)",
        "Shape(dtype=native.BFLOAT16, weights=Kind.INT8, eight_bit_cache=True)",
        "Shape(dtype=native.BFLOAT16, weights=Kind.INT4)",
    ],
    ids=["float32", "bfloat16", "int8", "int4"],
)
def test_no_step_allocates_once_the_largest_has_been(shape, counter):
    """Decoding, chunks of prompts and sampling; the largest step is seen to allocate, so they are counted."""
    environment = {**os.environ, "LD_PRELOAD": str(counter), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", STEPS.format(shape=shape), str(counter)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split() for line in done.stdout.splitlines())
    assert int(said["before"]) > 0
    assert said["after"] == "0"
