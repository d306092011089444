"""Triton's interpreter computes with numpy, which warns where a GPU gives an infinity or a NaN without a word. What the
kernels take that were compiled for chips stands at the end of a run."""

import sys

import numpy as np
import pytest


@pytest.fixture
def rows_alike(monkeypatch):
    """The interpreter's matrix products treat every row alike, as tensor cores do; numpy's own depend on where a row
    is, and on how many there are."""

    def product(a, b, dtype=None):
        return np.einsum("mk,kn->mn", a.astype(dtype), b.astype(dtype))

    monkeypatch.setattr(np, "matmul", product)


@pytest.fixture(autouse=True, scope="module")
def silent_infinities():
    with np.errstate(all="ignore"):
        yield


def pytest_terminal_summary(terminalreporter):
    compiled = sys.modules.get("compiled")
    if compiled is not None and compiled.all_weighed:
        terminalreporter.section("kernels compiled for absent chips: registers a thread / shared memory, at most")
        for line in compiled.table(compiled.all_weighed):
            terminalreporter.line(line)
