"""Calls of attention in many shapes on tensors of device "meta", to be compiled; nothing is computed.

As a program it compiles more shapes than a test run has time for: python attention_calls.py [TARGET…]
"""

import sys
from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor

from headrace_kernels.ops import HeadNorms, kv_cache_shape, paged_attention, rotate_and_store_kv

FLOAT8 = torch.float8_e4m3fn
HALVES = (torch.bfloat16, torch.float16)
HEADS = (64, 80, 96, 128, 192, 256)

PLAIN = (128, 4, torch.bfloat16, None)
SOME = (
    (64, 1, torch.bfloat16, None),
    (64, 4, torch.bfloat16, FLOAT8),
    (80, 8, torch.float16, None),
    (96, 1, torch.float16, None),
    (128, 1, torch.float16, FLOAT8),
    (128, 8, torch.bfloat16, FLOAT8),
    PLAIN,
    (256, 8, torch.bfloat16, FLOAT8),
)
"""(head_dim, query heads of a KV head, activations, cache). Every value of the first three and of the cache occurs."""


def meta(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    """A shape and a type."""
    return torch.empty(shape, dtype=dtype, device="meta")


def attend(
    num_tokens: int,
    num_rows: int,
    head_dim: int,
    group: int,
    dtype: torch.dtype,
    cache_dtype: torch.dtype | None,
    **options: object,
) -> None:
    """A layer of two KV heads: rotation and attention."""
    caches = [meta(*kv_cache_shape(100, 16, 2, head_dim), dtype=cache_dtype or dtype) for _ in range(2)]
    batch = meta(num_rows, 20), meta(num_rows + 1), meta(num_rows)
    norms = HeadNorms(meta(head_dim, dtype=dtype), meta(head_dim, dtype=dtype), 1e-5)
    qkv = meta(num_tokens, (2 * group + 4) * head_dim, dtype=dtype)
    cos_sin = meta(320, head_dim, dtype=torch.float32)
    query = rotate_and_store_kv(qkv, 2 * group, *caches, *batch, norms=norms, cos_sin=cos_sin)
    paged_attention(query, *caches, *batch, head_dim**-0.5, **options)  # type: ignore[arg-type]


def some() -> None:
    """Prompts and decodes of `SOME`; every option once."""
    for shape in SOME:
        attend(2048, 2, *shape)
        attend(8, 8, *shape, decode=True)
    attend(20, 10, *PLAIN)  # mostly decode rows
    options = {"sliding_window": 100, "softcap": 30.0, "sinks": meta(8, dtype=torch.float32)}
    attend(2048, 2, *PLAIN, **options)
    attend(2048, 2, *PLAIN, batch_invariant=True)
    attend(8, 8, *PLAIN, decode=True, batch_invariant=True, **options)
    for group in (1, 4):  # what takes the most registers of all
        widest = (256, group, torch.bfloat16, FLOAT8)
        attend(2048, 2, *widest)
        attend(2048, 2, *widest, batch_invariant=True)
        attend(8, 8, *widest, decode=True, batch_invariant=True)
        attend(8, 8, 192, group, torch.bfloat16, FLOAT8, decode=True)  # masked behind the head, too


def every() -> Iterator[str]:
    """All head sizes, groups and types, in all ways; says which is next."""
    for head_dim, group, dtype, cache in product(HEADS, (1, 4, 8), HALVES, (None, FLOAT8)):
        yield f"head_dim {head_dim}, group {group}, {dtype}, cache {cache}"
        for invariant in (False, True):
            attend(2048, 2, head_dim, group, dtype, cache, batch_invariant=invariant)
            attend(8, 8, head_dim, group, dtype, cache, batch_invariant=invariant, decode=True)
        attend(20, 10, head_dim, group, dtype, cache)


def _main(targets: list[str]) -> None:
    from compiled import TARGETS

    from headrace_kernels.gpu.ahead import compiling
    from headrace_kernels.gpu.resources import SHARED_LIMIT, resources

    for target in targets or TARGETS:
        with compiling(target) as compiled:
            shown = 0
            for shape in every():
                for kernel in compiled.kernels[shown:]:
                    taken = resources(kernel)
                    fits = taken.spilled == 0 and taken.shared <= SHARED_LIMIT[target]
                    print("" if fits else "TOO LARGE", target, taken)
                shown = len(compiled.kernels)
                print(shape, flush=True)


if __name__ == "__main__":
    _main(sys.argv[1:])
