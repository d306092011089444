"""What GPTQ's and AWQ's checkpoints hold, in the one form that is multiplied. Nothing is rounded.

tensor    GPTQ                                   AWQ
qweight   [in / 8, out] words of 8 inputs        [in, out / 8] words of 8 outputs
qzeros    [groups, out / 8]                      [groups, out / 8]
scales    [groups, out]                          [groups, out]
g_idx     [in]: the group of each input          none: neighbours are a group
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from headrace_kernels.checks import ArgumentError
from headrace_kernels.int4_matmul.weight import Int4Weight
from headrace_kernels.int4_shifts import IN_ORDER


def from_gptq(qweight: Tensor, zeros: Tensor, scales: Tensor, g_idx: Tensor | None, group_size: int) -> Int4Weight:
    """zeros: unpacked, and what the format subtracted added again. g_idx: None where neighbours are a group.

    Inputs whose groups are not neighbours ("act-order") are sorted by group; `order` says where they were.
    """
    if g_idx is None or _neighbours(g_idx, group_size):
        return Int4Weight(qweight.contiguous(), scales.contiguous(), zeros, group_size)
    order = g_idx.argsort(stable=True)
    if not _neighbours(g_idx[order], group_size):
        raise ArgumentError(f"g_idx: expected {group_size} inputs in each group")
    nibbles = unpack_columns(qweight.T, IN_ORDER).T  # [in_features, out_features]
    return Int4Weight(pack_rows(nibbles[order]), scales.contiguous(), zeros, group_size, order.to(torch.int32))


def from_gptq_part(qweight: Tensor, zeros: Tensor, scales: Tensor, g_idx: Tensor) -> Int4Weight:
    """Some of the inputs of a layer in act-order: `g_idx` of these, `zeros` and `scales` of all groups.

    They are sorted by group, so that what a program reads of scales lies together. Of a group there may be any number.
    """
    if not g_idx.is_meta and not bool(((g_idx >= 0) & (g_idx < len(scales))).all()):
        raise ArgumentError(f"g_idx: expected groups below {len(scales)}")
    order = g_idx.argsort(stable=True)
    packed = pack_rows(unpack_columns(qweight.T, IN_ORDER).T[order])
    groups = g_idx[order].to(torch.int32)
    return Int4Weight(packed, scales.contiguous(), zeros, 1, order.to(torch.int32), groups)


def from_awq(nibbles: Tensor, zeros: Tensor, scales: Tensor, group_size: int) -> Int4Weight:
    """Both unpacked: words of outputs become words of inputs."""
    return Int4Weight(pack_rows(nibbles), scales.contiguous(), zeros, group_size)


def unpack_columns(words: Tensor, shifts: Sequence[int]) -> Tensor:
    """[rows, columns] int32 → [rows, 8 * columns] uint8."""
    out = torch.empty(len(words), 8 * words.shape[1], dtype=torch.uint8, device=words.device)
    for place, shift in enumerate(shifts):
        out[:, place::8] = words >> shift & 15  # one at a time: all as int32 would be eight times the weights
    return out


def pack_rows(nibbles: Tensor) -> Tensor:
    """[8 * rows, columns] uint8 → [rows, columns] int32, the first in the lowest bits."""
    out = torch.zeros(len(nibbles) // 8, nibbles.shape[1], dtype=torch.int32, device=nibbles.device)
    for place, shift in enumerate(IN_ORDER):
        out |= nibbles[place::8].int() << shift
    return out


def _neighbours(g_idx: Tensor, group_size: int) -> bool:
    """Whether input k is in group k // group_size. Looks at contents: for loading."""
    return torch.equal(g_idx, torch.arange(len(g_idx), device=g_idx.device, dtype=g_idx.dtype) // group_size)
