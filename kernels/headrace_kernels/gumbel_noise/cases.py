"""Noise of whole rows. Sampling computes the same inside its own kernels."""

from collections.abc import Iterator

import torch

from headrace_kernels.gpu.cases import Case
from headrace_kernels.gumbel_noise import gumbel_noise


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    """The reference takes logarithms in float64."""
    rows, vocab_size = (2, 1000) if tiny else (256, 128256)
    seeds = torch.arange(rows, device=device) << 33
    indices = torch.arange(rows, device=device)
    yield Case(
        f"gumbel_noise: {rows} x {vocab_size}",
        lambda: gumbel_noise(seeds, indices, vocab_size, backend="triton"),
        lambda: gumbel_noise(seeds, indices, vocab_size, backend="reference"),
        bytes=4 * rows * vocab_size,
        flops=0,
        tolerance=3e-7,
    )
