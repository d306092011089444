"""The projections of an 8B model's feed-forward layer with 8-bit weights: few rows, many, and as if each were alone."""

from collections.abc import Iterator

import torch

from headrace_kernels.backends import Backend
from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.quantize_rows import QuantizedRows, quantize_rows
from headrace_kernels.scaled_matmul import GroupedWeight, scaled_matmul


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    in_features, out_features = (72, 40) if tiny else (4096, 14336)
    half = torch.float16 if tiny else torch.bfloat16
    plain = random(out_features, in_features, device=device, dtype=half, scale=in_features**-0.5)

    def case(
        name: str,
        rows: int,
        dtype: torch.dtype,
        small_rows: bool,
        batch_invariant: bool = False,
        group_size: int | None = None,
    ) -> Case:
        by_output = quantize_rows(plain, dtype, backend="reference")
        weight: QuantizedRows | GroupedWeight = by_output
        if group_size is not None:
            scales = by_output.scales.repeat(-(-in_features // group_size), 1)
            weight = GroupedWeight(by_output.values, scales, group_size)
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
    group_size = 32 if tiny else 128
    for rows in (few, some, many):
        yield case(f"float8 in groups of {group_size}", rows, torch.float8_e4m3fn, True, group_size=group_size)
    yield case(
        f"float8 weights alone in groups of {group_size}", few, torch.float8_e4m3fn, False, group_size=group_size
    )
