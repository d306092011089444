"""Gumbel noise on a GPU: `__init__.py` defines it.

As in noise.h no operation is fused or approximate, so the bits are the C++'s. A kernel that uses `noise_of_quads` must
be launched with `enable_fp_fusion=False`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.launch import launch

TILE = 2048  # tokens of a program


def gumbel_noise(seeds: Tensor, indices: Tensor, vocab_size: int) -> Tensor:
    """See `headrace_kernels.gumbel_noise`; the arguments are checked and contiguous."""
    out = torch.empty(len(seeds), vocab_size, device=seeds.device)
    grid = (len(seeds), triton.cdiv(vocab_size, TILE))
    launch(_noise_kernel, grid, seeds, indices, out, vocab_size, TILE=TILE, num_warps=4, enable_fp_fusion=False)
    return out


@triton.jit
def _noise_kernel(seeds_ptr, indices_ptr, out_ptr, vocab_size, TILE: tl.constexpr):
    row = tl.program_id(0)
    begin = tl.program_id(1) * TILE
    seed = tl.load(seeds_ptr + row)
    index = tl.load(indices_ptr + row)
    quads = begin // 4 + tl.arange(0, TILE // 4)
    noise = noise_of_quads(quads, low_word(seed), high_word(seed), low_word(index), high_word(index))
    tokens = begin + tl.arange(0, TILE)
    tl.store(out_ptr + row.to(tl.int64) * vocab_size + tokens, noise, mask=tokens < vocab_size)


@triton.jit
def low_word(bits):
    return (bits & 0xFFFFFFFF).to(tl.uint32)


@triton.jit
def high_word(bits):
    return (bits >> 32 & 0xFFFFFFFF).to(tl.uint32)


@triton.jit
def noise_of_quads(quads, seed_low, seed_high, index_low, index_high):
    """quads [..., n] int32: noise [..., 4 n] of tokens 4 * quad to 4 * quad + 3; seed and index are words of uint32."""
    counter = quads.to(tl.uint32)
    zeros = counter ^ counter
    a, b, c, d = tl.random.philox_impl(
        counter, zeros + index_low, zeros + index_high, zeros, zeros + seed_low, zeros + seed_high
    )
    # a of each quad, then b, c and d: one generator gives four tokens.
    words = tl.interleave(tl.interleave(a, c), tl.interleave(b, d))
    uniform = ((words >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07  # 2^-23
    return 0.0 - _log(0.0 - _log(uniform))


@triton.jit
def _log(x):
    """Natural logarithm of positive, normal floats, within 2 ulp."""
    # x = m * 2^e with m in [sqrt(1/2), sqrt(2)): the exponent is counted from sqrt(1/2)'s bits.
    root_of_half = 0x3F3504F3
    above = x.to(tl.int32, bitcast=True) - root_of_half
    e = (above >> 23).to(tl.float32)
    f = ((above & 0x007FFFFF) + root_of_half).to(tl.float32, bitcast=True) - 1.0
    square = f * f
    p = f * 7.0376836292e-2 + -1.1514610310e-1
    p = p * f + 1.1676998740e-1
    p = p * f + -1.2420140846e-1
    p = p * f + 1.4249322787e-1
    p = p * f + -1.6668057665e-1
    p = p * f + 2.0000714765e-1
    p = p * f + -2.4999993993e-1
    p = p * f + 3.3333331174e-1
    # ln 2 in two parts, the first of few bits, so that e times it is exact.
    tail = p * f * square + e * -2.12194440e-4 - square * 0.5
    return f + tail + e * 0.693359375
