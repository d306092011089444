"""Attention over the paged KV cache, for prompt chunks and decode rows in one call."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, ArgumentError, dense, expect
from headrace_kernels.float8 import FLOAT8
from headrace_kernels.kv_cache import has_panels, is_block_size, padded_head_dim
from headrace_kernels.paged_attention import cpu, reference
from headrace_kernels.paged_attention.workspace import DecodeWorkspace

MOST_HEAD_DIM = 256
"""Elements of a head that the Triton kernels can do."""


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
    *,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    panels: bool | None = None,
    decode: bool = False,
    workspace: DecodeWorkspace | None = None,
    batch_invariant: bool = False,
) -> Tensor:
    """Causal attention of a flat batch whose rows are decode rows, prompt chunks, or both.

    query             [num_tokens, num_heads, head_dim]; any stride between tokens
    k_cache, v_cache  of `kv_cache_shape`, contiguous, in query's dtype or in one of `FLOAT8`
    block_tables      [num_rows, max_blocks] int32: entry i of a row is the block of positions
                      [i * block_size, (i + 1) * block_size); entries past the context,
                      and those of blocks that a sliding window has left, are not read
    query_starts      [num_rows + 1] int32, rising from 0 to num_tokens: row r's queries are
                      query[query_starts[r]:query_starts[r + 1]]
    context_lengths   [num_rows] int32: positions with KV in the cache, this step's own tokens included
    scale             factor of the scores, above 0, usually head_dim ** -0.5
    sliding_window    how many positions a query sees, itself included; None sees all before it
    softcap           a bound that scores approach and never pass; None: no bound
    sinks             [num_heads] float32: the score of a position before all others, whose value is zero; None: none
    k_scale, v_scale  what a number in the caches is multiplied with to be a key or value; for 8-bit caches
    panels            the order of the caches (`kv_cache`); None: the one that the backend works with
    decode            the caller knows that no row has more than one query
    workspace         where Triton's decode keeps what its splits found; None: memory of this call's own
    batch_invariant   a query's bits shall depend on its own sequence only (Triton; the C++ backend's always do)
    returns           [num_tokens, num_heads, head_dim] in query's dtype, contiguous

    Query i of row r is at position p = context_lengths[r] - num_queries[r] + i. Head h reads KV head
    h // (num_heads // num_kv_heads). With key[j] and value[j] scaled,

        score[j] = scale * query . key[j], then softcap * tanh(score[j] / softcap)
        weight[j] = exp(score[j]) / (exp(sink) + sum_j exp(score[j]))
        out = sum_j weight[j] * value[j]                     over max(0, p - sliding_window + 1) <= j <= p

    in float32, rounded once at the end. This step's keys and values must be stored before (`store_kv`).

    Example: query_starts [0, 1, 5] and context_lengths [300, 20] are a decode row at position 299 and a chunk of
    four prompt tokens at positions 16 to 19. With 32-token blocks they read 10 blocks and 1.

    The C++ backend does float32 and bfloat16 with block sizes that are a power of two, at least 16, without softcap,
    sinks and 8-bit caches. It reads keys in tiles at fixed positions, so a query's bits are the same by decode and in
    any chunk. In bfloat16 the weights of keys are rounded to bfloat16 before they meet the values, as queries, keys
    and values are.

    The Triton backend does head sizes up to 256. It rounds weights to query's dtype, and with an 8-bit cache to
    float16, as it does queries: there they must be below 65,504, and larger ones are cut off. It checks no contents.
    A captured graph may be padded with tokens that no row has, whose results are not written, and with rows without
    context. With `batch_invariant` contexts are summed in partitions of `workspace.partition` tokens, merged in order:
    a query's bits then are the same by decode and in any chunk, alone and in any batch, as long as that number is.
    """
    _, num_heads, head_dim = query.shape
    num_kv_heads, block_size = k_cache.shape[1], k_cache.shape[2]
    num_rows = block_tables.shape[0]
    expect(query, "query", dtype=FLOATS)
    expect(k_cache, "k_cache", (None, None, None, padded_head_dim(head_dim)), (query.dtype, *FLOAT8), query)
    expect(v_cache, "v_cache", k_cache.shape, k_cache.dtype, query)
    expect(block_tables, "block_tables", (None, None), torch.int32, query)
    expect(query_starts, "query_starts", (num_rows + 1,), torch.int32, query)
    expect(context_lengths, "context_lengths", (num_rows,), torch.int32, query)
    if sinks is not None:
        expect(sinks, "sinks", (num_heads,), torch.float32, query)
    if num_kv_heads == 0 or num_heads % num_kv_heads:
        raise ArgumentError(f"query: {num_heads} heads are not a multiple of k_cache's {num_kv_heads} KV heads")
    if sliding_window is not None and sliding_window < 1:
        raise ArgumentError(f"sliding_window: expected at least 1 or None, got {sliding_window}")
    if softcap is not None and softcap <= 0:
        raise ArgumentError(f"softcap: expected above 0 or None, got {softcap}")
    plain = softcap is None and sinks is None and k_cache.dtype == query.dtype
    supported = is_block_size(block_size) and k_cache.is_contiguous() and v_cache.is_contiguous()
    able = choose(
        backend,
        query,
        cpu=supported and plain and panels is not False,
        triton=supported and head_dim <= MOST_HEAD_DIM and panels is not True,
    )
    batch = block_tables.contiguous(), query_starts.contiguous(), context_lengths.contiguous()
    query = dense(query)
    if able == "cpu":
        return cpu.paged_attention(query, k_cache, v_cache, *batch, scale, sliding_window)
    if able == "reference":
        panels = has_panels(panels, able, k_cache)
        return reference.paged_attention(
            query, k_cache, v_cache, *batch, scale, sliding_window, softcap, sinks, k_scale, v_scale, panels
        )
    from headrace_kernels.paged_attention.scores import Scores

    scores = Scores(scale, sliding_window, softcap, sinks, k_scale, v_scale)
    if workspace is None:
        workspace = DecodeWorkspace.for_call(query, block_tables, block_size)
    if decode:
        from headrace_kernels.paged_attention import triton_decode

        return triton_decode.paged_attention(query, k_cache, v_cache, *batch, scores, workspace, batch_invariant)
    from headrace_kernels.paged_attention import triton

    partition = workspace.partition if batch_invariant else 0
    return triton.paged_attention(query, k_cache, v_cache, *batch, scores, partition)
