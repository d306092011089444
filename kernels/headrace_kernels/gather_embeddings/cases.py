"""The embeddings of 256 decode rows of an 8B model."""

from collections.abc import Iterator

import torch

from headrace_kernels.backends import Backend
from headrace_kernels.gather_embeddings import gather_embeddings
from headrace_kernels.gpu.cases import Case, random


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    rows, size, vocab_size = (5, 40, 60) if tiny else (256, 4096, 128_256)
    weight = random(vocab_size, size, device=device, dtype=torch.float16 if tiny else torch.bfloat16)
    tokens = -1 - torch.arange(rows, device=device)
    last_tokens = torch.arange(rows, device=device) * 7 % vocab_size

    def gathered(backend: Backend) -> torch.Tensor:
        return gather_embeddings(weight, tokens, last_tokens, vocab_size, backend=backend)

    yield Case(
        "gather_embeddings: what was sampled last",
        lambda: gathered("triton"),
        lambda: gathered("reference"),
        2 * rows * size * weight.element_size(),
        0,
        0,
    )
