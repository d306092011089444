"""Sums of small tensors over the GPUs of one machine, each of which reads what the others have.

NCCL passes a tensor around in rounds, which for the few kilobytes of a decode step is mostly waiting. Here every GPU
maps the others' buffers and adds them up in one kernel. Large tensors would cross the links once per pair of GPUs, so
they are left to NCCL.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from headrace_server.log import LOGGER

MOST_BYTES = 512 * 1024  # of a tensor that is summed this way: 64 rows of a hidden size of 4096 in bfloat16
ALIGNMENT = 16  # bytes that the kernel reads at once


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


def one_shot_sum(dtype: torch.dtype, device: torch.device) -> OneShotSum | None:
    """None, with a line in the log, where this machine or this torch has no such thing."""
    if device.type != "cuda":
        return None
    try:
        return OneShotSum(dtype, device)
    except (RuntimeError, ImportError, AttributeError) as error:
        LOGGER.info("NCCL sums small tensors too: GPUs do not share memory here (%s)", str(error).splitlines()[0])
        return None
