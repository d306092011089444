"""The definition of `gumbel_noise` in plain torch."""

import torch
from torch import Tensor

from headrace_kernels.philox import MASK, philox


def gumbel_noise(seeds: Tensor, indices: Tensor, vocab_size: int) -> Tensor:
    """See `headrace_kernels.gumbel_noise`."""
    return (-(-uniforms(seeds, indices, vocab_size).double().log()).log()).float()


def uniforms(seeds: Tensor, indices: Tensor, vocab_size: int) -> Tensor:
    """[num_rows, vocab_size] float32, strictly between 0 and 1."""
    groups = torch.arange(-(-vocab_size // 4), device=seeds.device)[None, :]  # of four tokens each
    seeds, indices = seeds[:, None], indices[:, None]
    counter = (groups, indices & MASK, indices >> 32 & MASK, torch.zeros_like(groups))
    words = torch.stack(torch.broadcast_tensors(*philox(counter, (seeds & MASK, seeds >> 32 & MASK))), dim=-1)
    return ((words.flatten(1)[:, :vocab_size] >> 9).float() + 0.5) * 2.0**-23
