"""The projection of an 8B model's feed-forward layer: one row, as many as a tile has, and many."""

from collections.abc import Iterator

import torch

from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.invariant_linear import invariant_linear


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    in_features, out_features = (72, 40) if tiny else (4096, 14336)
    half = torch.float16 if tiny else torch.bfloat16

    def case(name: str, rows: int, dtype: torch.dtype, has_bias: bool) -> Case:
        weight = random(out_features, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
        bias = random(out_features, device=device, dtype=dtype, seed=3) if has_bias else None
        x = random(rows, in_features, device=device, dtype=dtype, seed=2)
        return Case(
            f"invariant_linear: {name}, {rows} rows",
            lambda: invariant_linear(x, weight, bias, backend="triton"),
            lambda: invariant_linear(x, weight, bias, backend="reference"),
            nbytes(weight, x) + rows * out_features * weight.element_size(),
            2 * rows * in_features * out_features,
            1e-2,
        )

    for rows in (1, 3, 70) if tiny else (1, 64, 2048):
        yield case("16 bits", rows, half, False)
    yield case("16 bits with a bias", 2, half, True)
    yield case("float32", 2, torch.float32, False)
    yield case("float32 with a bias", 2, torch.float32, True)
