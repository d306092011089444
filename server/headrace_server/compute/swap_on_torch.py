"""KV in host memory, for what torch computes."""

from collections.abc import Sequence

from headrace_kernels.copy_blocks import cache_pointers
from headrace_kernels.copy_blocks.swap import host_pool, swap_in, swap_out
from headrace_server.attention.paged import LayerCache
from headrace_server.compute.host_blocks import HostBlocks, trial_pairs
from headrace_server.devices.interface import Device
from headrace_server.step import Ints


class HostCache:
    """Blocks that were swapped out of the pool; on a GPU the copies are part of its order of work."""

    def __init__(self, layers: Sequence[LayerCache], num_blocks: int, host_blocks: int, device: Device) -> None:
        self._caches = [cache for layer in layers for cache in (layer.keys, layer.values)]
        self._pointers = cache_pointers(self._caches)
        self._host = host_pool(self._caches, host_blocks)
        self._blocks = HostBlocks(num_blocks, host_blocks)
        self._num_blocks = num_blocks
        self._device = device

    def swap(self, out: Ints, back: Ints) -> None:
        """See `Compute.swap`."""
        self._blocks.note(out, back)
        if self._host.numel():  # a rank without KV heads has blocks of no bytes
            swap_out(self._caches, self._pointers, self._host, out.tolist())
            swap_in(self._host, self._caches, self._pointers, back.tolist())

    def swap_us(self) -> int:
        """See `Compute.swap_us`."""
        pairs = trial_pairs(self._num_blocks, self._blocks.count)
        if len(pairs) == 0:
            return 0
        self.swap(pairs, pairs)
        began = self._device.mark()
        self.swap(pairs, pairs)
        ended = self._device.mark()
        ended.wait()
        return -(-ended.us_since(began) // (2 * len(pairs)))
