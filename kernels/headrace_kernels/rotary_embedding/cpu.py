"""Calls the C++ `rotary_embedding`."""

from torch import Tensor

from headrace_kernels.backends import DTYPES
from headrace_kernels.checks import expect_range
from headrace_kernels.native import INT, INT32, POINTER, Kernel, num_threads

_rotary_embedding = Kernel(
    "rotary_embedding",
    *(POINTER, INT, INT),  # query, its stride and heads
    *(POINTER, INT, INT),  # key, its stride and heads
    *(INT32, POINTER, POINTER, INT, INT, INT, INT, INT32),
)


def rotary_embedding(query: Tensor, key: Tensor, cos_sin: Tensor, positions: Tensor) -> None:
    """See `headrace_kernels.rotary_embedding`; all arguments checked but the values of positions."""
    num_tokens, num_heads, head_dim = query.shape
    if not _rotary_embedding(
        query.data_ptr(),
        query.stride(0),
        num_heads,
        key.data_ptr(),
        key.stride(0),
        key.shape[1],
        DTYPES[query.dtype],
        cos_sin.data_ptr(),
        positions.data_ptr(),
        num_tokens,
        head_dim,
        cos_sin.shape[0],
        cos_sin.shape[1],
        num_threads(),
    ):
        expect_range(positions, "positions", 0, cos_sin.shape[0])
