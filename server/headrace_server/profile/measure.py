"""Runs a shape's steps and says where their time went: medians over the steps."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from headrace_kernels import native
from headrace_kernels.decoder import OPERATIONS, Times
from headrace_server.compute.on_cpu import CpuCompute
from headrace_server.profile.shapes import Extent, Shape
from headrace_server.profile.steps import Steps

WARM = 3
"""Steps that do not count."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One step. Seconds; of operations the mean over threads."""

    total: float  # message to answer
    forward: float  # batch, call into C++
    sampling: float
    work: dict[str, float]
    waiting: dict[str, float]  # at the barriers before each operation

    @property
    def kernels(self) -> float:
        return sum(self.work.values()) + sum(self.waiting.values())


@dataclass(frozen=True, slots=True)
class Profile:
    """Medians over a shape's steps, seconds."""

    shape: Shape
    extent: Extent  # of the step in the middle
    sampled: int
    total: float
    kernels: float
    call: float  # batch, outputs, into C++ and back
    sampling: float
    bookkeeping: float  # parsing, rows, results, rendering
    outside: float  # share of the step that is not in a kernel
    work: dict[str, float]
    waiting: dict[str, float]


def measure(steps: Steps, compute: CpuCompute, shape: Shape, runs: int) -> Profile:
    """`runs` steps that count."""
    samples = [_timed(steps, compute, run) for run in _runs(steps, shape, WARM + runs)][WARM:]
    middle = shape.context + WARM + runs // 2
    extent = Extent(shape.rows, middle - 1, middle) if shape.rows else Extent(1, 0, shape.context)
    return Profile(
        shape=shape,
        extent=extent,
        sampled=max(shape.rows, 1),
        total=median(sample.total for sample in samples),
        kernels=median(sample.kernels for sample in samples),
        call=median(sample.forward - sample.kernels for sample in samples),
        sampling=median(sample.sampling for sample in samples),
        bookkeeping=median(sample.total - sample.forward - sample.sampling for sample in samples),
        outside=median(1 - sample.kernels / sample.total for sample in samples),
        work={name: median(sample.work[name] for sample in samples) for name in OPERATIONS},
        waiting={name: median(sample.waiting[name] for sample in samples) for name in OPERATIONS},
    )


def _runs(steps: Steps, shape: Shape, count: int) -> Iterator[Callable[[], bytes]]:
    """Steps to be run one after the other; making the message takes no part of them."""
    if shape.rows == 0:
        for _ in range(count):
            prompt = steps.prompt(shape)
            yield lambda prompt=prompt: steps.execute_prefill(prompt)  # type: ignore[misc]
    else:
        for message in steps.decodes(shape, count):
            yield lambda message=message: steps.execute_decode(message)  # type: ignore[misc]


def _timed(steps: Steps, compute: CpuCompute, run: Callable[[], bytes]) -> Sample:
    compute.times = times = Times()
    began = time.perf_counter()
    run()
    total = time.perf_counter() - began
    compute.times = None
    a_thread = 1e-9 / native.num_threads()
    return Sample(
        total,
        steps.last.forward_us * 1e-6,
        steps.last.sampling_us * 1e-6,
        {name: took * a_thread for name, took in zip(OPERATIONS, times.work, strict=True)},
        {name: took * a_thread for name, took in zip(OPERATIONS, times.waiting, strict=True)},
    )
