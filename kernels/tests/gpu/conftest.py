"""Triton's interpreter computes with numpy, which warns where a GPU gives an infinity or a NaN without a word."""

import numpy as np
import pytest


@pytest.fixture(autouse=True, scope="module")
def silent_infinities():
    with np.errstate(all="ignore"):
        yield
