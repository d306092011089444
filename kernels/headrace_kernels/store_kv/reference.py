"""The definition of `store_kv` in plain torch."""

from torch import Tensor

from headrace_kernels.float8 import encode
from headrace_kernels.kv_cache import write_keys, write_values
from headrace_kernels.paged_attention.batch import check_batch, places


def store_kv(
    key: Tensor,
    value: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    k_scale: float,
    v_scale: float,
    panels: bool,
) -> None:
    """See `headrace_kernels.store_kv`."""
    num_blocks, _, block_size, _ = k_cache.shape
    num_tokens, num_kv_heads, head_dim = key.shape
    check_batch(num_tokens, num_blocks, block_size, block_tables, query_starts, context_lengths, 1)
    rows, positions = places(query_starts, context_lengths)
    blocks, offsets = block_tables[rows, positions // block_size].long(), positions % block_size
    for cache, write, new, scale in ((k_cache, write_keys, key, k_scale), (v_cache, write_values, value, v_scale)):
        padded = new.new_zeros(num_tokens, num_kv_heads, cache.shape[3])
        padded[..., :head_dim] = new
        stored = padded if cache.dtype == new.dtype else encode(padded, scale, cache.dtype)
        write(cache, blocks, offsets, stored, panels=panels)
