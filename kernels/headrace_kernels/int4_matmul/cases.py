"""A projection of an 8B model's feed-forward layer with 4-bit weights: few rows and many."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from headrace_kernels.backends import Backend
from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.int4_matmul import Int4Weight, int4_matmul


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    in_features, out_features = (256, 40) if tiny else (4096, 14336)
    dtype = torch.float16 if tiny else torch.bfloat16
    groups = in_features // 128
    weight = Int4Weight(
        (random(in_features // 8, out_features, device=device) * 1e9).to(torch.int32),
        random(groups, out_features, device=device, dtype=torch.float16, scale=in_features**-0.5),
        torch.full((groups, out_features), 8, dtype=torch.uint8, device=device),
        128,
    )
    scattered = replace(
        weight, groups=torch.arange(in_features, dtype=torch.int32, device=device) * groups // in_features
    )
    size = nbytes(weight.packed, weight.scales, weight.zeros)

    def case(rows: int, weight: Int4Weight = weight, batch_invariant: bool = False) -> Case:
        x = random(rows, in_features, device=device, dtype=dtype, seed=2)

        def product(backend: Backend) -> torch.Tensor:
            return int4_matmul(x, weight, backend=backend, batch_invariant=batch_invariant)

        kind = "batch-invariant, " if batch_invariant else "" if weight.groups is None else "groups of any size, "
        return Case(
            f"int4_matmul: {kind}{rows} rows",
            lambda: product("triton"),
            lambda: product("reference"),
            size + 2 * rows * (in_features + out_features),
            2 * rows * in_features * out_features,
            1e-2,
        )

    yield from map(case, (1, 17, 40) if tiny else (1, 64, 256, 2048))
    yield case(3 if tiny else 2048, batch_invariant=True)
    yield from (case(rows, scattered) for rows in ((1, 17) if tiny else (1, 32, 64, 256, 2048)))
