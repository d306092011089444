"""Builds the C++ library if its sources changed; seeded tensors and this machine's instruction sets for tests."""

import pytest
import torch

from headrace_kernels import build, native

if not build.is_current():
    build.build()

torch.set_num_threads(2)

ISAS = list(build.instruction_sets())[: list(build.instruction_sets()).index(native.isa()) + 1]
"""Instruction sets that this machine can run, the plainest first."""


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
    """Sets torch's number of threads; the old one comes back after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
