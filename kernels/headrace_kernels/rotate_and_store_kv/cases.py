"""What lies between an 8B model's QKV projection and attention, of 256 decode rows."""

from collections.abc import Iterator

import torch
from torch import Tensor

from headrace_kernels.backends import Backend
from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.kv_cache import kv_cache_shape
from headrace_kernels.rotate_and_store_kv import HeadNorms, rotate_and_store_kv

BLOCK_SIZE = 16


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    tokens, heads, kv_heads, head_dim = (3, 4, 2, 32) if tiny else (256, 32, 8, 128)
    dtype = torch.float16 if tiny else torch.bfloat16
    qkv = random(tokens, (heads + 2 * kv_heads) * head_dim, device=device, dtype=dtype)
    query_norm, key_norm = (random(head_dim, device=device, dtype=dtype, seed=seed) for seed in (2, 3))
    norms = HeadNorms(query_norm, key_norm, eps=1e-5)
    cos_sin = random(BLOCK_SIZE, head_dim, device=device, seed=4)
    batch = (
        torch.arange(tokens, device=device, dtype=torch.int32)[:, None],
        torch.arange(tokens + 1, device=device, dtype=torch.int32),
        torch.full((tokens,), 5, device=device, dtype=torch.int32),
    )
    for name, cache_dtype in (("", dtype), (", float8 cache", torch.float8_e4m3fn)):
        shape = kv_cache_shape(tokens, BLOCK_SIZE, kv_heads, head_dim)
        keys = torch.zeros(shape, device=device).to(cache_dtype)
        values = keys.clone()

        def run(backend: Backend, keys: Tensor = keys, values: Tensor = values) -> list[Tensor]:
            used = qkv.clone()
            query = rotate_and_store_kv(
                used, heads, keys, values, *batch, norms=norms, cos_sin=cos_sin, panels=False, backend=backend
            )
            return [query, keys.clone(), values.clone()]

        moved = nbytes(qkv) + tokens * (heads + 2 * kv_heads) * head_dim * keys.element_size()
        yield Case(
            f"rotate_and_store_kv{name}",
            lambda run=run: run("triton"),  # type: ignore[misc]
            lambda run=run: run("reference"),  # type: ignore[misc]
            moved,
            0,
            0.1 if name else 1e-2,
        )
