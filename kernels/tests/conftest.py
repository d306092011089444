"""Builds the C++ library if its sources changed; seeded tensors and this machine's instruction sets for tests."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before any triton.py is imported

import pytest
import torch
from hypothesis import HealthCheck, settings

from headrace_kernels import build, native

# A busy machine may stop a test anywhere, for as long as it likes; and what failed once fails again.
settings.register_profile("headrace", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headrace")

if not build.is_current():
    build.build()
if not build.is_current(build.EMULATED_LIBRARY):
    build.build(build.EMULATED_LIBRARY, emulated=True)

native.set_num_threads(2)

ISAS = [*list(build.instruction_sets())[: list(build.instruction_sets()).index(native.isa()) + 1], native.EMULATED]
"""Instruction sets that this machine can run, the plainest first; tiles are emulated everywhere."""


@pytest.fixture(params=ISAS)
def isa(request):
    """Runs the test once with the kernels of each instruction set."""
    native.force_isa(request.param)
    yield request.param
    native.force_isa(None)


@pytest.fixture
def generator():
    """Random numbers from a fixed seed."""
    return torch.Generator().manual_seed(20251)


@pytest.fixture
def threads():
    """Sets how many threads kernels use; the old number comes back after the test."""
    yield native.set_num_threads
    native.set_num_threads(2)
