"""Attention of an 8B model's layer: 256 decode rows of 1,000 tokens, a prompt of 4,096, both together."""

from collections.abc import Iterator

import torch
from torch import Tensor

from headrace_kernels.backends import Backend
from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.kv_cache import kv_cache_shape
from headrace_kernels.paged_attention import paged_attention

BLOCK_SIZE = 16


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    rows, context, prompt = (3, 70, 40) if tiny else (256, 1000, 4096)
    for name, rows_of, cache_dtype in (
        ("decode", [(1, context)] * rows, None),
        ("decode, float8 cache", [(1, context)] * rows, torch.float8_e4m3fn),
        ("prompt", [(prompt, prompt)], None),
        ("decode and a chunk", [(1, context)] * rows + [(prompt // 2, prompt)], None),
    ):
        yield attention_case(name, rows_of, cache_dtype, device, tiny)


def attention_case(
    name: str, rows: list[tuple[int, int]], cache_dtype: torch.dtype | None, device: torch.device, tiny: bool
) -> Case:
    """`rows`: (queries, context) of each."""
    heads, kv_heads, head_dim = (4, 2, 32) if tiny else (32, 8, 128)
    dtype = torch.float16 if tiny else torch.bfloat16
    width = max(-(-context // BLOCK_SIZE) for _, context in rows)
    num_blocks = sum(-(-context // BLOCK_SIZE) for _, context in rows)
    tables = torch.zeros(len(rows), width, dtype=torch.int32)
    order, used = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(4)).int(), 0
    for table, (_, context) in zip(tables, rows, strict=True):
        count = -(-context // BLOCK_SIZE)
        table[:count], used = order[used : used + count], used + count
    starts = torch.tensor([0] + [queries for queries, _ in rows]).cumsum(0).int()
    contexts = torch.tensor([context for _, context in rows]).int()
    batch = tables.to(device), starts.to(device), contexts.to(device)
    query = random(int(starts[-1]), heads, head_dim, device=device, dtype=dtype)
    shape = kv_cache_shape(num_blocks, BLOCK_SIZE, kv_heads, head_dim)
    keys, values = (random(*shape, device=device, seed=seed).to(cache_dtype or dtype) for seed in (2, 3))
    decode = all(queries == 1 for queries, _ in rows)

    def run(backend: Backend) -> Tensor:
        return paged_attention(
            query, keys, values, *batch, head_dim**-0.5, backend=backend, panels=False, decode=decode, k_scale=0.5
        )

    pairs = sum(queries * context - queries * (queries - 1) // 2 for queries, context in rows)
    read = sum(context for _, context in rows) * kv_heads * head_dim * 2 * keys.element_size()
    return Case(
        f"paged_attention: {name}",
        lambda: run("triton"),
        lambda: run("reference"),
        read + 2 * nbytes(query),
        4 * pairs * heads * head_dim,
        1e-2,
    )
