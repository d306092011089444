"""Random numbers for sampling, as a function of (seed, index, token) and of nothing else."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import ArgumentError, expect
from headrace_kernels.gumbel_noise import cpu, reference


def gumbel_noise(seeds: Tensor, indices: Tensor, vocab_size: int, *, backend: Backend | None = None) -> Tensor:
    """Gumbel noise: the argmax of log-probabilities plus this is a sample of the distribution.

    seeds    [num_rows] int64: the bits of a request's unsigned 64-bit seed
    indices  [num_rows] int64: index of the token to be sampled among the row's generated ones
    returns  [num_rows, vocab_size] float32, each between -2.82 and 16.64

    A counter-based generator, Philox4x32-10 of Salmon et al. (2011), so there is no state that could be lost, and a
    token's noise is the same whatever else is in the batch:

        x = philox(key=(seed low, seed high), counter=(token_id // 4, index low, index high, 0))[token_id % 4]
        u = ((x >> 9) + 0.5) * 2^-23                               exact in float32, strictly between 0 and 1
        noise = -log(-log(u))

    Seed 0, index 0, tokens 0 to 3: x is 6627e8d5 e169c58d bc57ac4c 9b00dbd8, u[0] = 0.399046, noise[0] = 0.084820.

    `u` is the same everywhere, bit for bit. The reference takes logarithms in float64 and rounds; the C++ differs by
    at most 3e-7 * max(1, |noise|), and its bits are the same with every instruction set and compiler, because it
    only uses operations that IEEE 754 rounds exactly. The GPU does the same operations and has the same bits.
    """
    expect(seeds, "seeds", (None,), torch.int64)
    expect(indices, "indices", seeds.shape, torch.int64, seeds)
    if vocab_size < 1:
        raise ArgumentError(f"vocab_size: expected at least 1, got {vocab_size}")
    backend = choose(backend, torch.empty(0, device=seeds.device))
    if backend == "cpu":
        return cpu.gumbel_noise(seeds.contiguous(), indices.contiguous(), vocab_size)
    if backend == "triton":
        from headrace_kernels.gumbel_noise import triton

        return triton.gumbel_noise(seeds.contiguous(), indices.contiguous(), vocab_size)
    return reference.gumbel_noise(seeds, indices, vocab_size)
