"""Rows as they come to the output projection of an 8B model."""

from collections.abc import Iterator

import torch

from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.quantize_rows import QuantizedRows, quantize_rows


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    tokens, size = (3, 40) if tiny else (256, 4096)
    x = random(tokens, size, device=device, dtype=torch.float16 if tiny else torch.bfloat16)

    def case(name: str, dtype: torch.dtype) -> Case:
        return Case(
            f"quantize_rows: {name}",
            lambda: meant(quantize_rows(x, dtype, backend="triton")),
            lambda: meant(quantize_rows(x, dtype, backend="reference")),
            nbytes(x) + tokens * size,
            0,
            1e-2,
        )

    yield case("int8", torch.int8)
    yield case("float8", torch.float8_e4m3fn)


def meant(rows: QuantizedRows) -> torch.Tensor:
    """What the rows stand for: values that were rounded to neighbours are compared as what they are."""
    return rows.values.float() * rows.scales[:, None]
