"""The definition of `paged_attention` in plain torch: one row after another, one matrix product each."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from headrace_kernels.float8 import decode
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
    softcap: float | None,
    sinks: Tensor | None,
    k_scale: float,
    v_scale: float,
    panels: bool,
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
        keys = decode(_gather(partial(read_keys, panels=panels), k_cache, block_tables[row], context), k_scale)
        values = decode(_gather(partial(read_values, panels=panels), v_cache, block_tables[row], context), v_scale)
        out[tokens] = _attend(
            query[tokens], keys[..., :head_dim], values[..., :head_dim], scale, sliding_window, softcap, sinks
        ).to(query.dtype)
    return out


def _gather(read: Callable[[Tensor, Tensor], Tensor], cache: Tensor, block_table: Tensor, context: int) -> Tensor:
    """The first `context` positions of a sequence: [num_kv_heads, context, padded_head_dim]."""
    num_blocks, num_kv_heads, block_size, dim = cache.shape
    # Blocks before a sliding window may be anything: what they hold is masked.
    blocks = block_table[: -(-context // block_size)].long().clamp(0, num_blocks - 1)
    return read(cache, blocks).transpose(0, 1).reshape(num_kv_heads, -1, dim)[:, :context]


def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """query [num_queries, num_heads, head_dim], the last ones of the context → the same shape, float32."""
    num_queries, num_heads, head_dim = query.shape
    num_kv_heads, context, _ = keys.shape
    grouped = query.float().view(num_queries, num_kv_heads, num_heads // num_kv_heads, head_dim)
    scores = torch.einsum("qhgd,hkd->hgqk", grouped, keys) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~_visible(num_queries, context, window, query.device), float("-inf"))
    if sinks is not None:  # a position without a value
        sink = sinks.float().view(num_kv_heads, -1, 1, 1).expand(*scores.shape[:3], 1)
        weights = torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :context]
    else:
        weights = scores.softmax(dim=-1)
    out = torch.einsum("hgqk,hkd->qhgd", weights, values)
    return out.reshape(num_queries, num_heads, head_dim)


def _visible(num_queries: int, context: int, window: int | None, device: torch.device) -> Tensor:
    """[num_queries, context] bool: which positions each query sees."""
    positions = torch.arange(context - num_queries, context, device=device)[:, None]
    keys = torch.arange(context, device=device)[None, :]
    visible = keys <= positions
    return visible if window is None else visible & (keys > positions - window)
