"""Writing keys and values into the paged cache."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, use_cpu_backend
from headrace_kernels.checks import dense, expect, expect_range
from headrace_kernels.store_kv import cpu, reference


def store_kv(
    key: Tensor, value: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor, *, backend: Backend | None = None
) -> None:
    """Write this step's keys and values into the paged cache, in place.

    key, value        [num_tokens, num_kv_heads, head_dim] in the cache's dtype; any stride between tokens
    k_cache, v_cache  [num_blocks, num_kv_heads, block_size, head_dim], contiguous (`kv_cache_shape`)
    slots             [num_tokens] int64: block * block_size + offset; -1 skips the token

        k_cache[slot // block_size, :, slot % block_size] = key[token]      and the same for values

    Position 37 of a sequence with blocks [4, 9, 7] of 16 tokens: block 7, offset 5, slot 117. No two tokens may have
    the same slot. Only copies, so all backends agree bit for bit.
    """
    num_tokens, num_kv_heads, head_dim = key.shape
    expect(value, "value", key.shape, key.dtype, key)
    expect(k_cache, "k_cache", (None, num_kv_heads, None, head_dim), key.dtype, key)
    expect(v_cache, "v_cache", k_cache.shape, key.dtype, key)
    expect(slots, "slots", (num_tokens,), torch.int64, key)
    if use_cpu_backend(backend, key, supported=k_cache.is_contiguous() and v_cache.is_contiguous()):
        cpu.store_kv(dense(key), dense(value), k_cache, v_cache, slots.contiguous())
    else:
        expect_range(slots, "slots", -1, k_cache.shape[0] * k_cache.shape[2])
        reference.store_kv(key, value, k_cache, v_cache, slots)
