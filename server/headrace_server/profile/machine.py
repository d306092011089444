"""What this machine can do at best: bytes a second, and operations a second for each kind of weights."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.linear import DENSE, linear, pack_linear
from headrace_kernels.memory import Arena, huge_zeros
from headrace_kernels.quantized_linear import Kind, QuantizedWeight, quantized_linear

READ_FLOATS = 2**27  # 512 MiB: no cache holds a useful part of it
# Rows stay in the second-level cache, each panel is used for all of them, and what `linear` does beside it is little.
ROWS, IN_FEATURES, COLUMNS = 128, 1024, 2048
TIMES = 20

_read_memory = native.Kernel("read_memory", native.POINTER, native.INT, native.INT32)


@dataclass(frozen=True, slots=True)
class Machine:
    """Of all threads together."""

    bandwidth: float  # bytes a second, read in order from huge pages
    flops: dict[int, float]  # kind of weights → multiplications and additions a second


def measure_machine(kinds: Iterable[int], dtype: int) -> Machine:
    """With as many threads as kernels use. The best of several tries: whoever else runs here takes nothing away."""
    memory = huge_zeros((READ_FLOATS,), np.float32)
    memory.fill(1)
    read = partial(_read_memory, memory.ctypes.data, memory.size, native.num_threads())
    operations = 2 * ROWS * IN_FEATURES * COLUMNS
    return Machine(
        bandwidth=memory.nbytes / _best_seconds(read),
        flops={kind: operations / _best_seconds(_product(kind, dtype)) for kind in kinds},
    )


def _product(kind: int, dtype: int) -> Callable[[], object]:
    """Rows times a matrix that is read from memory once."""
    rows = _ones((ROWS, IN_FEATURES), dtype)
    if kind == DENSE:
        dense = pack_linear(_ones((COLUMNS, IN_FEATURES), dtype), dtype)
        return lambda: linear(rows, dense, COLUMNS)
    weight = QuantizedWeight.empty(Kind(kind), COLUMNS, IN_FEATURES, Arena())
    return lambda: quantized_linear(rows, weight)


def _ones(shape: tuple[int, int], dtype: int) -> NDArray:
    """bfloat16 as its bits."""
    return np.full(shape, 0x3F80, np.uint16) if dtype == native.BFLOAT16 else np.ones(shape, np.float32)


def _best_seconds(work: Callable[[], object]) -> float:
    work()
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        took.append(time.perf_counter() - began)
    return min(took)


def kind_name(kind: int, dtype: int) -> str:
    """`bfloat16`, or `int8` for 8-bit weights."""
    if kind == DENSE:
        return {native.BFLOAT16: "bfloat16", native.FLOAT32: "float32"}[dtype]
    return Kind(kind).name.lower()
