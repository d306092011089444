"""The definition of `store_kv` in plain torch."""

from torch import Tensor


def store_kv(key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """See `headrace_kernels.store_kv`."""
    block_size = k_cache.shape[2]
    kept = (slots >= 0).nonzero().flatten()
    blocks, offsets = slots[kept] // block_size, slots[kept] % block_size
    k_cache[blocks, :, offsets] = key[kept]
    v_cache[blocks, :, offsets] = value[kept]
