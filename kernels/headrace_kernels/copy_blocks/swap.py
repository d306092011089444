"""KV blocks out to the host's memory and back.

A block of one layer is a few dozen kilobytes: copying each by itself would start twice as many transfers as the model
has layers. So blocks are packed on the device first, and one transfer takes a block of all layers, or a run of blocks
that are neighbours on the host. The copy engines do it while kernels run; on pinned memory nothing waits for the host.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from headrace_kernels.copy_blocks import block_bytes, pack_blocks, unpack_blocks

AT_ONCE = 32
"""Blocks that are packed together: bounds the memory that packing takes."""

Pairs = Sequence[tuple[int, int]]


def host_pool(caches: Sequence[Tensor], num_blocks: int) -> Tensor:
    """[num_blocks, len(caches), block_bytes] uint8 of the host, pinned if the caches are a GPU's; on "meta" for caches
    that have only shapes."""
    shape, first = (num_blocks, len(caches), block_bytes(caches)), caches[0]
    return torch.empty(shape, dtype=torch.uint8, device="meta" if first.is_meta else "cpu", pin_memory=first.is_cuda)


def swap_out(caches: Sequence[Tensor], pointers: Tensor, host: Tensor, pairs: Pairs) -> None:
    """(block of the caches, block of the host) each. Returns before the bytes are there: in the stream's order."""
    for part in _parts(pairs):
        packed = pack_blocks(caches, pointers, _on(caches[0].device, [block for block, _ in part]))
        for start, end in _runs([slot for _, slot in part]):
            first = part[start][1]
            host[first : first + end - start].copy_(packed[start:end], non_blocking=True)


def swap_in(host: Tensor, caches: Sequence[Tensor], pointers: Tensor, pairs: Pairs) -> None:
    """(block of the host, block of the caches) each. Returns before the bytes are there: in the stream's order."""
    for part in _parts(pairs):
        packed = torch.empty(len(part), *host.shape[1:], dtype=torch.uint8, device=caches[0].device)
        for start, end in _runs([slot for slot, _ in part]):
            first = part[start][0]
            packed[start:end].copy_(host[first : first + end - start], non_blocking=True)
        unpack_blocks(packed, caches, pointers, _on(caches[0].device, [block for _, block in part]))


def _on(device: torch.device, blocks: Sequence[int]) -> Tensor:
    numbers = torch.tensor(blocks, dtype=torch.int64)
    # From memory that is not pinned a copy would wait for all that the device has been given.
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)


def _parts(pairs: Pairs) -> Iterator[Pairs]:
    for start in range(0, len(pairs), AT_ONCE):
        yield pairs[start : start + AT_ONCE]


def _runs(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges [start, end) of places in `slots` whose slots follow one another: [4, 5, 9] has (0, 2) and (2, 3)."""
    start = 0
    for end in range(1, len(slots) + 1):
        if end == len(slots) or slots[end] != slots[end - 1] + 1:
            yield start, end
            start = end
