"""Which blocks of host memory hold KV that was swapped out."""

import numpy as np

from headrace_server.errors import ProtocolError
from headrace_server.step import Ints


class HostBlocks:
    """A host block holds something from the copy out that succeeded to the copy back: what was not copied can't come
    back by mistake."""

    def __init__(self, num_blocks: int, count: int) -> None:
        """Beside a pool of `num_blocks`."""
        self.count = count
        self._num_blocks = num_blocks
        self._filled = np.zeros(count, np.bool_)

    def check_out(self, pairs: Ints) -> None:
        """Pairs of block and host block, which hold nothing until `note_out`. Raises ProtocolError for unknown ones."""
        blocks, hosts = pairs.T
        self._check(blocks, hosts)
        self._filled[hosts] = False

    def note_out(self, pairs: Ints) -> None:
        """They were copied."""
        self._filled[pairs[:, 1]] = True

    def check_back(self, pairs: Ints) -> None:
        """Pairs of host block and block, copied next. Raises ProtocolError for unknown ones, and host blocks that hold
        nothing."""
        hosts, blocks = pairs.T
        self._check(blocks, hosts)
        if not self._filled[hosts].all():
            raise ProtocolError(f"a swap brings back host block {hosts[~self._filled[hosts]][0]}, which holds nothing")
        self._filled[hosts] = False

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
