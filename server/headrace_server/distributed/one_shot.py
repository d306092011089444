"""Sums of small tensors over the GPUs of one machine, each of which reads what the others have.

NCCL passes a tensor around in rounds, which for the few kilobytes of a decode step is mostly waiting. Here every GPU
maps the others' buffers and adds them up in one kernel. Large tensors would cross the links once per pair of GPUs, so
they are left to NCCL.
"""

import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

MOST_BYTES = 512 * 1024  # of a tensor that is summed this way: 64 rows of a hidden size of 4096 in bfloat16
ALIGNMENT = 16  # bytes that the kernel reads at once
DTYPES = (torch.bfloat16, torch.float32)
"""What torch's kernel adds up."""


class Place(NamedTuple):
    """Where a rank is."""

    host: str  # the same where processes can pass each other what stands for memory
    gpu: int  # as this process numbers them


class OneShotSum:
    """A buffer that all GPUs of the group can read."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        """Raises RuntimeError where GPUs can't read each other's memory. Every rank takes part."""
        from torch.distributed import _symmetric_memory

        self._group = dist.group.WORLD.group_name  # type: ignore[union-attr]
        self._buffer = _symmetric_memory.empty(MOST_BYTES // dtype.itemsize, dtype=dtype, device=device)
        _symmetric_memory.rendezvous(self._buffer, self._group)

    def takes(self, x: Tensor) -> bool:
        size = x.numel() * x.element_size()
        return x.dtype == self._buffer.dtype and size <= MOST_BYTES and size % ALIGNMENT == 0

    def __call__(self, x: Tensor, total: Tensor) -> None:
        """`total`, contiguous, may be x."""
        mine = self._buffer[: x.numel()]
        mine.copy_(x.reshape(-1))
        torch.ops.symm_mem.one_shot_all_reduce_out(mine, "sum", self._group, total.view(-1))


def place_of(device: torch.device) -> Place:
    """Torch's processes pass each other memory through sockets, named by process ids, in the folder for temporary
    files: that all has to be in common."""
    host = [socket.gethostname(), tempfile.gettempdir()]
    with suppress(OSError):  # a container may not show them
        host.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        host += [str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("mnt", "pid")]
    return Place(" ".join(host), device.index or 0)


def why_not(dtype: torch.dtype, places: Sequence[Place], rank: int) -> str | None:
    """What is in the way of a `OneShotSum`, as far as this rank can tell; None if nothing is. Asked beforehand: ranks
    that begin to make one where some can't wait for each other for ever."""
    if dtype not in DTYPES:
        return f"torch adds up no {str(dtype).removeprefix('torch.')} so"
    if len({place.host for place in places}) > 1:
        return "ranks are on several machines, or in containers that share too little"
    mine = places[rank].gpu
    others = {place.gpu for place in places} - {mine}
    if len(others) < len(places) - 1:
        return "ranks see just their own GPUs"
    if far := [other for other in others if not torch.cuda.can_device_access_peer(mine, other)]:
        return f"GPU {mine} can't read the memory of GPU {far[0]}"
    return None
