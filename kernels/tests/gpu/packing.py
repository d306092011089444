"""4-bit weights as GPTQ's and AWQ's checkpoints hold them, written number by number after the formats' descriptions."""

import torch
from torch import Tensor


def draw(in_features: int, out_features: int, group_size: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Seeded (nibbles [in, out], zeros [groups, out], scales [groups, out] float16)."""
    generator = torch.Generator().manual_seed(seed)
    groups = -(-in_features // group_size)
    nibbles = torch.randint(16, (in_features, out_features), generator=generator)
    zeros = torch.randint(1, 16, (groups, out_features), generator=generator)
    scales = torch.rand(groups, out_features, generator=generator) * 0.2 + 0.01
    return nibbles, zeros, scales.half()


def pack(numbers: Tensor, axis: int, place_of: list[int]) -> Tensor:
    """Eight neighbours along `axis` become an int32; the number at place i of them goes to bits 4 place_of[i] …"""
    rows = numbers.movedim(axis, -1).unflatten(-1, (-1, 8))
    words = torch.zeros(rows.shape[:-1], dtype=torch.int64)
    for i, place in enumerate(place_of):
        words += rows[..., i] << 4 * place
    words = torch.where(words >= 2**31, words - 2**32, words)
    return words.to(torch.int32).movedim(-1, axis).contiguous()


def gptq(nibbles: Tensor, zeros: Tensor, zero_offset: int = 1) -> tuple[Tensor, Tensor]:
    """(qweight, qzeros)."""
    return pack(nibbles, 0, list(range(8))), pack(zeros - zero_offset, 1, list(range(8)))


def awq(nibbles: Tensor, zeros: Tensor) -> tuple[Tensor, Tensor]:
    """(qweight, qzeros): of eight outputs 0, 2, 4, 6, 1, 3, 5, 7 come in this order, from the lowest bits up."""
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    return pack(nibbles, 1, order), pack(zeros, 1, order)


def values(nibbles: Tensor, zeros: Tensor, scales: Tensor, group_of: Tensor) -> Tensor:
    """[in, out] float32: what the numbers stand for; group_of [in]."""
    return scales.float()[group_of] * (nibbles - zeros[group_of])
