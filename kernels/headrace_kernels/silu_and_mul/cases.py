"""The gate of an 8B model's feed-forward layer with 256 tokens."""

from collections.abc import Iterator

import torch

from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.quantize_rows.cases import meant
from headrace_kernels.silu_and_mul import silu_and_mul, silu_and_mul_quantized


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    tokens, size = (3, 40) if tiny else (256, 14336)
    gate_up = random(tokens, 2 * size, device=device, dtype=torch.float16 if tiny else torch.bfloat16)
    yield Case(
        "silu_and_mul",
        lambda: silu_and_mul(gate_up, backend="triton"),
        lambda: silu_and_mul(gate_up, backend="reference"),
        nbytes(gate_up) * 3 // 2,
        0,
        1e-2,
    )
    yield Case(
        "silu_and_mul_quantized: int8",
        lambda: meant(silu_and_mul_quantized(gate_up, torch.int8, backend="triton")),
        lambda: meant(silu_and_mul_quantized(gate_up, torch.int8, backend="reference")),
        nbytes(gate_up) * 5 // 4,
        0,
        1e-2,
    )
