"""A GPU, by torch.cuda: NVIDIA's, and AMD's where torch was built for it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_server.devices.interface import Graph, Memory
from headrace_server.memory import GPU_SHARE, available_on_gpu

ALIGNMENT = 16  # bytes between arrays of one transfer: Triton compiles a kernel anew for a pointer that has less


class CudaMark:
    """An event of the device's only stream of work."""

    def __init__(self) -> None:
        self._event = torch.cuda.Event(enable_timing=True)
        self._event.record()

    def wait(self) -> None:
        self._event.synchronize()

    def us_since(self, earlier: Any) -> int:
        return int(earlier._event.elapsed_time(self._event) * 1000)


@dataclass(frozen=True, slots=True)
class CudaGraph:
    """A recorded graph, and the memory of its output."""

    graph: torch.cuda.CUDAGraph
    output: Tensor

    def replay(self) -> Tensor:
        self.graph.replay()
        return self.output


class CudaDevice:
    """See `Device`. All work goes to the current stream of the thread that gives it, which is the model thread."""

    overlaps = True
    records = True

    def __init__(self, index: int = 0) -> None:
        self.torch_device = torch.device("cuda", index)
        torch.cuda.set_device(self.torch_device)
        self._graphs: WeakSet[torch.cuda.CUDAGraph] = WeakSet()  # those that somebody has
        self._graph_memory: Any = None  # theirs

    def memory(self, fraction: float) -> Memory:
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self.torch_device)
        reserved = torch.cuda.memory_reserved(self.torch_device)
        return Memory(available_on_gpu(free, total, reserved, fraction), GPU_SHARE)

    def usable(self) -> bool:
        """After an illegal access, or a failure of the hardware, every call of this process gives the same error."""
        try:
            torch.cuda.synchronize(self.torch_device)  # a thread that lands steps has a current device of its own
        except Exception:
            return False
        return True

    def relieve(self) -> None:
        torch.cuda.synchronize(self.torch_device)
        torch.cuda.empty_cache()

    def upload(self, arrays: Sequence[NDArray]) -> list[Tensor]:
        packed, places = pack(arrays)
        # Pinned memory is the allocator's to give out again, and it does when the copy has been made: so nobody waits
        # here, however far behind the device is.
        pinned = torch.from_numpy(packed).pin_memory()
        return unpack(pinned.to(self.torch_device, non_blocking=True), arrays, places)

    def download(self, tensors: Sequence[Tensor]) -> Callable[[], list[NDArray]]:
        copies = [torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True) for tensor in tensors]
        for copy, tensor in zip(copies, tensors, strict=True):
            copy.copy_(tensor, non_blocking=True)
        mark = self.mark()

        def landed() -> list[NDArray]:
            mark.wait()
            return [copy.numpy() for copy in copies]

        return landed

    def mark(self) -> CudaMark:
        return CudaMark()

    def record(self, run: Callable[[], Tensor]) -> Graph:
        run()  # compiles and allocates what may not be compiled or allocated while recording
        torch.cuda.synchronize(self.torch_device)
        if not self._graphs:
            # Not the memory of graphs that are gone: something in it may still be held, such as the workspace that the
            # library for products got while the first was recorded, and torch records into no such memory.
            self._graph_memory = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Of this thread alone: the one that lands steps may ask for an event meanwhile.
        with torch.cuda.graph(graph, pool=self._graph_memory, capture_error_mode="thread_local"):
            output = run()
        self._graphs.add(graph)
        return CudaGraph(graph, output)

    def worst_case(self, run: Callable[[], None]) -> int:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self.torch_device)
        before, _ = torch.cuda.mem_get_info(self.torch_device)
        run()
        torch.cuda.synchronize(self.torch_device)
        # What libraries and graphs took outside torch's own allocator is in what the driver says is free.
        after, _ = torch.cuda.mem_get_info(self.torch_device)
        held = torch.cuda.memory_reserved(self.torch_device)
        peak = torch.cuda.max_memory_reserved(self.torch_device)
        return max(before - after, 0) + max(peak - held, 0)


def pack(arrays: Sequence[NDArray]) -> tuple[NDArray[np.uint8], list[int]]:
    """All arrays in one piece of bytes, and where each begins: at a multiple of ALIGNMENT."""
    places, end = [], 0
    for array in arrays:
        places.append(end)
        end += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    packed = np.empty(end, np.uint8)
    for array, place in zip(arrays, places, strict=True):
        packed[place : place + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return packed, places


def unpack(packed: Tensor, arrays: Sequence[NDArray], places: Sequence[int]) -> list[Tensor]:
    """Tensors like `arrays` in what `pack` made of them."""

    def view(array: NDArray, place: int) -> Tensor:
        dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        return packed[place : place + array.nbytes].view(dtype).view(array.shape)

    return [view(array, place) for array, place in zip(arrays, places, strict=True)]
