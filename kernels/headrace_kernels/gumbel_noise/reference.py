"""The definition of `gumbel_noise` in plain torch. Unsigned 32-bit words are held in int64."""

import torch
from torch import Tensor

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
MASK = 0xFFFFFFFF


def gumbel_noise(seeds: Tensor, indices: Tensor, vocab_size: int) -> Tensor:
    """See `headrace_kernels.gumbel_noise`."""
    return (-(-uniforms(seeds, indices, vocab_size).double().log()).log()).float()


def uniforms(seeds: Tensor, indices: Tensor, vocab_size: int) -> Tensor:
    """[num_rows, vocab_size] float32, strictly between 0 and 1."""
    groups = torch.arange(-(-vocab_size // 4), device=seeds.device)[None, :]  # of four tokens each
    seeds, indices = seeds[:, None], indices[:, None]
    counter = (groups, indices & MASK, indices >> 32 & MASK, torch.zeros_like(groups))
    words = torch.stack(philox(counter, (seeds & MASK, seeds >> 32 & MASK)), dim=-1)
    return ((words.flatten(1)[:, :vocab_size] >> 9).float() + 0.5) * 2.0**-23


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Philox4x32-10: four words of counter and two of key, broadcast against each other, to four words."""
    a, b, c, d = torch.broadcast_tensors(*counter, *key)[:4]
    low, high = key
    for _ in range(ROUNDS):
        # The products wrap as signed 64-bit numbers; their bits are the unsigned ones.
        left, right = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (right >> 32 & MASK) ^ b ^ low, right & MASK, (left >> 32 & MASK) ^ d ^ high, left & MASK
        low, high = low + WEYL[0] & MASK, high + WEYL[1] & MASK
    return a, b, c, d
