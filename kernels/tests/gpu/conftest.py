"""Triton's interpreter computes with numpy, which warns where a GPU gives an infinity or a NaN without a word."""

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
