"""A step for which the system has no memory changes nothing: what was computed is still there, smaller steps compute
the same as ever, and the same one goes well when there is memory again."""

import mmap
import resource
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from decoder_world import Shape, World, tokens

from headrace_kernels import native
from headrace_kernels.quantized_linear import Kind

SPARE = 8 * 2**20
"""Bytes for what Python needs. A step of a LONG sequence needs more."""
SHORT, LONG = 60, 1100
WIDE = 2048

SHAPES = {
    "float32": Shape(hidden=WIDE),
    "bfloat16": Shape(hidden=2 * WIDE, dtype=native.BFLOAT16),
    "4 bits": Shape(hidden=2 * WIDE, dtype=native.BFLOAT16, weights=Kind.INT4),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_step_without_memory_leaves_all_as_it_was(name: str) -> None:
    """In a process of its own, which may take no more memory for a while."""
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        processes.submit(run_short, SHAPES[name]).result(timeout=120)


def run_short(shape: Shape) -> None:
    native.set_num_threads(2)
    world, untroubled = (World(shape, [tokens(SHORT, 0), tokens(LONG, 1)]) for _ in range(2))

    def goes_well(counts: dict[int, int]) -> None:
        np.testing.assert_array_equal(world.step(counts, whole=False), untroubled.step(counts, whole=False))

    goes_well({0: 16})
    last = np.arange(12, 16)
    before = world.decoder.logits(last)
    with no_more_memory():
        with pytest.raises(MemoryError):
            world.decoder.reserve(2**16, 16)
        with pytest.raises(MemoryError):
            world.step({1: LONG}, whole=False)
        world.computed[1] = 0
        np.testing.assert_array_equal(world.decoder.logits(last), before)
        goes_well({0: 16})
        goes_well({0: 1, 1: 3})
    goes_well({1: LONG - 3})
    goes_well({0: SHORT - 33})


@contextmanager
def no_more_memory() -> Iterator[None]:
    held = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (held + SPARE, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
