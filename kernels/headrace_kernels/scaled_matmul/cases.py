"""The projections of an 8B model's feed-forward layer with 8-bit weights: few rows, many, and as if each were alone."""

from collections.abc import Iterator

import torch

from headrace_kernels.backends import Backend
from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.quantize_rows import quantize_rows
from headrace_kernels.scaled_matmul import scaled_matmul


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    in_features, out_features = (72, 40) if tiny else (4096, 14336)
    half = torch.float16 if tiny else torch.bfloat16
    plain = random(out_features, in_features, device=device, dtype=half, scale=in_features**-0.5)

    def case(name: str, rows: int, dtype: torch.dtype, small_rows: bool, batch_invariant: bool = False) -> Case:
        weight = quantize_rows(plain, dtype, backend="reference")
        x = random(rows, in_features, device=device, dtype=half, seed=2)
        given = quantize_rows(x, dtype, backend="reference") if small_rows else x

        def product(backend: Backend) -> torch.Tensor:
            return scaled_matmul(given, weight, dtype=half, backend=backend, batch_invariant=batch_invariant)

        return Case(
            f"scaled_matmul: {name}, {rows} rows",
            lambda: product("triton"),
            lambda: product("reference"),
            nbytes(weight.values) + rows * (in_features * (1 if small_rows else 2) + out_features * 2),
            2 * rows * in_features * out_features,
            1e-2,
        )

    few, some, many = (1, 3, 5) if tiny else (1, 64, 2048)
    for name, dtype in (("int8", torch.int8), ("float8", torch.float8_e4m3fn)):
        for rows in (few, some, many):
            yield case(name, rows, dtype, True)
        for rows in (few, many):
            yield case(f"{name} weights alone", rows, dtype, False)
        yield case(f"{name}, batch-invariant", some, dtype, True, True)
        yield case(f"{name} weights alone, batch-invariant", some, dtype, False, True)
