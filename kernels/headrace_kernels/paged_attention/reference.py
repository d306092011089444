"""The definition of `paged_attention` in plain torch: one row after another, one matrix product each."""

from collections.abc import Callable

import torch
from torch import Tensor

from headrace_kernels.kv_cache import read_keys, read_values
from headrace_kernels.paged_attention.batch import check_batch


def paged_attention(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    scale: float,
    sliding_window: int | None,
) -> Tensor:
    """See `headrace_kernels.paged_attention`."""
    num_blocks, _, block_size, _ = k_cache.shape
    check_batch(query.shape[0], num_blocks, block_size, block_tables, query_starts, context_lengths, sliding_window)
    out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    starts = query_starts.tolist()
    for row, context in enumerate(context_lengths.tolist()):
        tokens = slice(starts[row], starts[row + 1])
        if tokens.start == tokens.stop:
            continue
        head_dim = query.shape[2]
        keys = _gather(read_keys, k_cache, block_tables[row], context)[..., :head_dim]
        values = _gather(read_values, v_cache, block_tables[row], context)[..., :head_dim]
        out[tokens] = _attend(query[tokens], keys, values, scale, sliding_window).to(query.dtype)
    return out


def _gather(read: Callable[[Tensor, Tensor], Tensor], cache: Tensor, block_table: Tensor, context: int) -> Tensor:
    """The first `context` positions of a sequence: [num_kv_heads, context, padded_head_dim] float32."""
    num_blocks, num_kv_heads, block_size, dim = cache.shape
    # Blocks before a sliding window may be anything: what they hold is masked.
    blocks = block_table[: -(-context // block_size)].long().clamp(0, num_blocks - 1)
    return read(cache, blocks).transpose(0, 1).reshape(num_kv_heads, -1, dim)[:, :context].float()


def _attend(query: Tensor, keys: Tensor, values: Tensor, scale: float, window: int | None) -> Tensor:
    """query [num_queries, num_heads, head_dim], the last ones of the context → the same shape, float32."""
    num_queries, num_heads, head_dim = query.shape
    num_kv_heads, context, _ = keys.shape
    grouped = query.float().view(num_queries, num_kv_heads, num_heads // num_kv_heads, head_dim)
    scores = torch.einsum("qhgd,hkd->hgqk", grouped, keys) * scale
    scores = scores.masked_fill(~_visible(num_queries, context, window, query.device), float("-inf"))
    out = torch.einsum("hgqk,hkd->qhgd", scores.softmax(dim=-1), values)
    return out.reshape(num_queries, num_heads, head_dim)


def _visible(num_queries: int, context: int, window: int | None, device: torch.device) -> Tensor:
    """[num_queries, context] bool: which positions each query sees."""
    positions = torch.arange(context - num_queries, context, device=device)[:, None]
    keys = torch.arange(context, device=device)[None, :]
    visible = keys <= positions
    return visible if window is None else visible & (keys > positions - window)
