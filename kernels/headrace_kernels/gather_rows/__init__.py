"""Rows of a matrix by their numbers, such as the hidden rows that need logits."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, dense, expect, expect_range
from headrace_kernels.gather_rows import reference


def gather_rows(x: Tensor, rows: Tensor, *, backend: Backend | None = None) -> Tensor:
    """Copy some rows, in the order in which they are named.

    x        [num_rows, size]; any stride between rows
    rows     [count] int64, in [0, num_rows); on a GPU numbers outside are taken to the nearest inside
    returns  [count, size] in x's dtype, contiguous

        out[i] = x[rows[i]]

    Only copies, so it equals `reference.gather_rows` bit for bit. Rows [7, 2] of x are x[7] and x[2].
    """
    expect(x, "x", (None, None), FLOATS)
    expect(rows, "rows", (None,), torch.int64, x)
    if choose(backend, x, cpu=False) == "triton":
        from headrace_kernels.gather_rows import triton

        return triton.gather_rows(dense(x), rows.contiguous())
    if x.is_cpu:
        expect_range(rows, "rows", 0, len(x))
    return reference.gather_rows(x, rows)
