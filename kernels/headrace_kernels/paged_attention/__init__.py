"""Attention over the paged KV cache, for prompt chunks and decode rows in one call."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, ArgumentError, dense, expect
from headrace_kernels.kv_cache import is_block_size, padded_head_dim
from headrace_kernels.paged_attention import cpu, reference


def paged_attention(
    query: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    scale: float,
    sliding_window: int | None = None,
    backend: Backend | None = None,
) -> Tensor:
    """Causal attention of a flat batch whose rows are decode rows, prompt chunks, or both.

    query             [num_tokens, num_heads, head_dim]; any stride between tokens
    k_cache, v_cache  of `kv_cache_shape`, in query's dtype, contiguous
    block_tables      [num_rows, max_blocks] int32: entry i of a row is the block of positions
                      [i * block_size, (i + 1) * block_size); entries past the context,
                      and those of blocks that a sliding window has left, are not read
    query_starts      [num_rows + 1] int32, rising from 0 to num_tokens: row r's queries are
                      query[query_starts[r]:query_starts[r + 1]]
    context_lengths   [num_rows] int32: positions with KV in the cache, this step's own tokens included
    scale             factor of the scores, usually head_dim ** -0.5
    sliding_window    how many positions a query sees, itself included; None sees all before it
    returns           [num_tokens, num_heads, head_dim] in query's dtype, contiguous

    Query i of row r is at position p = context_lengths[r] - num_queries[r] + i. Head h reads KV head
    h // (num_heads // num_kv_heads), and

        out = sum_j softmax_j(scale * query . key[j]) * value[j]    over max(0, p - sliding_window + 1) <= j <= p

    in float32, rounded once at the end. This step's keys and values must be stored before (`store_kv`).

    Example: query_starts [0, 1, 5] and context_lengths [300, 20] are a decode row at position 299 and a chunk of
    four prompt tokens at positions 16 to 19. With 32-token blocks they read 10 blocks and 1.

    The C++ backend does float32 and bfloat16 with block sizes that are a power of two, at least 16. It reads keys in
    tiles at fixed positions, so a query's bits are the same by decode and in any chunk. In bfloat16 the weights of
    keys are rounded to bfloat16 before they meet the values, as queries, keys and values are.
    """
    _, num_heads, head_dim = query.shape
    num_kv_heads, block_size = k_cache.shape[1], k_cache.shape[2]
    num_rows = block_tables.shape[0]
    expect(query, "query", dtype=FLOATS)
    expect(k_cache, "k_cache", (None, None, None, padded_head_dim(head_dim)), query.dtype, query)
    expect(v_cache, "v_cache", k_cache.shape, query.dtype, query)
    expect(block_tables, "block_tables", (None, None), torch.int32, query)
    expect(query_starts, "query_starts", (num_rows + 1,), torch.int32, query)
    expect(context_lengths, "context_lengths", (num_rows,), torch.int32, query)
    if num_kv_heads == 0 or num_heads % num_kv_heads:
        raise ArgumentError(f"query: {num_heads} heads are not a multiple of k_cache's {num_kv_heads} KV heads")
    if sliding_window is not None and sliding_window < 1:
        raise ArgumentError(f"sliding_window: expected at least 1 or None, got {sliding_window}")
    supported = is_block_size(block_size) and k_cache.is_contiguous() and v_cache.is_contiguous()
    able = choose(backend, query, cpu=supported, triton=False)
    run = cpu.paged_attention if able == "cpu" else reference.paged_attention
    return run(
        dense(query),
        k_cache,
        v_cache,
        block_tables.contiguous(),
        query_starts.contiguous(),
        context_lengths.contiguous(),
        scale,
        sliding_window,
    )
