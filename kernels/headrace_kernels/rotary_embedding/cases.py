"""Rotation of an 8B model's queries and keys with 256 tokens."""

from collections.abc import Iterator

import torch

from headrace_kernels.backends import Backend
from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.rotary_embedding import rotary_embedding


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    tokens, heads, kv_heads, head_dim = (3, 3, 1, 16) if tiny else (256, 32, 8, 128)
    dtype = torch.float16 if tiny else torch.bfloat16
    query = random(tokens, heads, head_dim, device=device, dtype=dtype)
    key = random(tokens, kv_heads, head_dim, device=device, dtype=dtype, seed=2)
    angles = random(2048, head_dim // 2, device=device, seed=3)
    cos_sin = torch.cat((angles.cos(), angles.sin()), dim=1)
    positions = torch.arange(tokens, device=device)

    def rotated(backend: Backend) -> tuple[torch.Tensor, torch.Tensor]:
        copies = query.clone(), key.clone()
        rotary_embedding(*copies, cos_sin, positions, backend=backend)
        return copies

    # Three times the bytes of a rotation in place: the copies are made each time.
    moved = 4 * nbytes(query, key)
    yield Case("rotary_embedding", lambda: rotated("triton"), lambda: rotated("reference"), moved, 0, 1e-2)
