"""The hidden rows that sample, out of a step with chunks."""

from collections.abc import Iterator

import torch

from headrace_kernels.gather_rows import gather_rows
from headrace_kernels.gpu.cases import Case, nbytes, random


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    tokens, size = (5, 40) if tiny else (4096, 4096)
    x = random(tokens, size, device=device, dtype=torch.float16 if tiny else torch.bfloat16)
    rows = torch.arange(0, tokens, 2, device=device)
    yield Case(
        "gather_rows",
        lambda: gather_rows(x, rows, backend="triton"),
        lambda: gather_rows(x, rows, backend="reference"),
        nbytes(x),
        0,
        0,
    )
