"""Which blocks of host memory hold KV that was swapped out."""

import numpy as np

from headrace_server.errors import ProtocolError
from headrace_server.step import Ints


class HostBlocks:
    """A host block holds something from a copy out to the copy back: what nobody sent out can't come back by mistake.

    A copy for which there was no memory counts as made. Ranks must say the same of later messages, whichever of them
    had no memory, and a router does not bring back what went out with a step that failed.
    """

    def __init__(self, num_blocks: int, count: int) -> None:
        """Beside a pool of `num_blocks`."""
        self.count = count
        self._num_blocks = num_blocks
        self._filled = np.zeros(count, np.bool_)

    def note(self, out: Ints, back: Ints) -> None:
        """Pairs of block and host block are copied next, then pairs of host block and block. Raises ProtocolError for
        unknown ones, and if a host block that is to come back holds nothing; then none is to be copied."""
        self._check(*out.T)
        hosts, blocks = back.T
        self._check(blocks, hosts)
        filled = self._filled.copy()
        filled[out[:, 1]] = True
        if not filled[hosts].all():
            raise ProtocolError(f"a swap brings back host block {hosts[~filled[hosts]][0]}, which holds nothing")
        filled[hosts] = False
        self._filled = filled

    def _check(self, blocks: Ints, hosts: Ints) -> None:
        if len(blocks) and (blocks.max() >= self._num_blocks or hosts.max() >= self.count):
            raise ProtocolError(
                f"a swap names block {blocks.max()} and host block {hosts.max()}, but the pool has {self._num_blocks} "
                f"and host memory {self.count}"
            )


def trial_pairs(num_blocks: int, host_blocks: int) -> Ints:
    """Pairs to measure a copy with: enough that what comes once counts little, few enough to take no time."""
    count = np.arange(min(num_blocks, host_blocks, 16))
    return np.stack((count, count), axis=1)
