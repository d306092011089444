"""Calls the C++ `store_kv`."""

from torch import Tensor

from headrace_kernels.checks import expect_range
from headrace_kernels.native import INT, INT32, POINTER, Kernel, num_threads

_store_kv = Kernel(
    "store_kv", POINTER, INT, POINTER, INT, POINTER, POINTER, POINTER, INT, INT, INT, INT, INT, INT, INT32
)


def store_kv(key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """See `headrace_kernels.store_kv`; all arguments checked but the values of slots."""
    num_blocks, num_kv_heads, block_size, head_dim = k_cache.shape
    if not _store_kv(
        key.data_ptr(),
        key.stride(0),
        value.data_ptr(),
        value.stride(0),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        slots.data_ptr(),
        key.shape[0],
        num_blocks,
        num_kv_heads,
        block_size,
        head_dim,
        key.element_size(),
        num_threads(),
    ):
        expect_range(slots, "slots", -1, num_blocks * block_size)
