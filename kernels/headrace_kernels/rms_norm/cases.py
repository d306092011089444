"""The norms of an 8B model's layer with 256 tokens."""

from collections.abc import Iterator

import torch

from headrace_kernels.backends import Backend
from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.quantize_rows.cases import meant
from headrace_kernels.rms_norm import add_rms_norm, add_rms_norm_quantized, rms_norm


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    tokens, size, heads = (3, 40, 2) if tiny else (256, 4096, 32)
    half = torch.float16 if tiny else torch.bfloat16
    x, weight = random(tokens, size, device=device, dtype=half), random(size, device=device, dtype=half, seed=2)
    residual = random(tokens, size, device=device, seed=3)
    moved = 2 * nbytes(x) + 2 * nbytes(residual)

    def norm(backend: Backend) -> torch.Tensor:
        return rms_norm(x, weight, 1e-5, backend=backend)

    def heads_norm(backend: Backend) -> torch.Tensor:
        return rms_norm(x.view(tokens, heads, -1), weight[: size // heads], 1e-5, backend=backend)

    def add(backend: Backend) -> tuple[torch.Tensor, torch.Tensor]:
        return add_rms_norm(x, residual, weight, 1e-5, backend=backend)

    def add_quantized(backend: Backend) -> tuple[torch.Tensor, torch.Tensor]:
        rows, total = add_rms_norm_quantized(x, residual, weight, 1e-5, torch.int8, backend=backend)
        return meant(rows), total

    yield Case("rms_norm", lambda: norm("triton"), lambda: norm("reference"), 2 * nbytes(x), 0, 1e-2)
    yield Case(
        "rms_norm: of each head", lambda: heads_norm("triton"), lambda: heads_norm("reference"), 2 * nbytes(x), 0, 1e-2
    )
    yield Case("add_rms_norm", lambda: add("triton"), lambda: add("reference"), moved, 0, 1e-2)
    yield Case(
        "add_rms_norm_quantized: int8",
        lambda: add_quantized("triton"),
        lambda: add_quantized("reference"),
        moved - nbytes(x) // 2,
        0,
        1e-2,
    )
