"""What `CudaDevice` asks of torch.cuda, which here is a stand-in with torch's own rules about the memory of graphs."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from headrace_server.devices import cuda
from headrace_server.devices.cuda import CudaDevice


class Graph:
    """Torch's CUDAGraph: the memory that it was recorded in counts it until it is gone."""

    def __init__(self, counts: Counter[int]) -> None:
        self._counts = counts
        self.pool: int | None = None

    def __del__(self) -> None:
        if self.pool is not None:
            self._counts[self.pool] -= 1


class Torch:
    """Torch.cuda, as far as it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.graphs: Counter[int] = Counter()  # that each pool counts
        self.handles = 0
        self.synchronized: list[Any] = []
        for name in ("set_device", "empty_cache"):
            monkeypatch.setattr(torch.cuda, name, lambda *_: None)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: self.synchronized.append(device))
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", self._handle)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: Graph(self.graphs))
        monkeypatch.setattr(torch.cuda, "graph", self._capture)

    def _handle(self) -> int:
        self.handles += 1
        return self.handles

    @contextmanager
    def _capture(self, graph: Graph, pool: int, capture_error_mode: str) -> Iterator[None]:
        """A pool is known from its first graph on for ever, since a library holds a workspace in it. Then torch wants a
        graph in it that there still is: INTERNAL ASSERT FAILED, use_count > 0."""
        assert capture_error_mode == "thread_local"
        assert pool not in self.graphs or self.graphs[pool] > 0
        self.graphs[pool] += 1
        graph.pool = pool
        yield


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return Torch(monkeypatch)


def some() -> Tensor:
    return torch.zeros(1)


def test_graphs_share_memory_while_one_of_them_is_there(there: Torch) -> None:
    device = CudaDevice()
    kept = [device.record(some) for _ in range(3)]
    assert there.graphs == {1: 3}
    kept.pop()
    kept.append(device.record(some))
    assert there.graphs == {1: 3}


def test_after_the_last_one_is_gone_the_next_has_memory_of_its_own(there: Torch) -> None:
    """As after Warmup, which drops the graph that it records: torch would refuse to record in that one's memory."""
    device = CudaDevice()
    device.record(some)
    kept = [device.record(some), device.record(some)]
    assert there.graphs == {1: 0, 2: 2}
    del kept
    device.record(some)
    assert there.handles == 3


def test_a_graph_that_could_not_be_recorded_leaves_the_next_one_memory(there: Torch) -> None:
    device, runs = CudaDevice(), 0

    def fails_while_it_is_recorded() -> Tensor:
        nonlocal runs
        runs += 1
        if runs == 2:
            raise torch.OutOfMemoryError("no memory")
        return some()

    with pytest.raises(torch.OutOfMemoryError):
        device.record(fails_while_it_is_recorded)
    device.record(some)


@pytest.mark.parametrize("ask", [CudaDevice.usable, CudaDevice.relieve])
def test_a_thread_whose_current_device_is_another_asks_for_its_own(
    there: Torch, ask: Callable[[CudaDevice], object]
) -> None:
    """The thread that lands steps never chose a device: rank 1's waits for GPU 1, not for GPU 0."""
    device = CudaDevice(1)
    landing = threading.Thread(target=ask, args=(device,))
    landing.start()
    landing.join()
    assert there.synchronized == [torch.device("cuda", 1)]


def test_arrays_come_back_out_of_one_transfer_as_they_were() -> None:
    arrays = [
        np.arange(3, dtype=np.int32),
        np.empty((0, 4), np.int64),
        np.array([[True, False, True]]),
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
    ]
    packed, places = cuda.pack(arrays)
    assert [place % cuda.ALIGNMENT for place in places] == [0] * 4
    for array, tensor in zip(arrays, cuda.unpack(torch.from_numpy(packed), arrays, places), strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_what_crosses_between_host_and_device_lies_in_pinned_memory(
    there: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch copies from and to other memory as well, but then the host waits for the device, and nothing says so."""
    pinned: list[int] = []
    unhurried: list[bool] = []
    empty, to, copy = torch.empty, Tensor.to, Tensor.copy_

    def pin(tensor: Tensor) -> Tensor:
        pinned.append(tensor.nbytes)
        return tensor

    def allocate(*shape: Any, pin_memory: bool = False, **options: Any) -> Tensor:
        return pin(empty(*shape, **options)) if pin_memory else empty(*shape, **options)

    def upload(tensor: Tensor, device: torch.device, non_blocking: bool = False) -> Tensor:
        unhurried.append(non_blocking)
        return to(tensor, device)

    def download(tensor: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        unhurried.append(non_blocking)
        return copy(tensor, source)

    for name, stand_in in (("pin_memory", pin), ("to", upload), ("copy_", download)):
        monkeypatch.setattr(Tensor, name, stand_in)
    monkeypatch.setattr(torch, "empty", allocate)
    monkeypatch.setattr(cuda, "CudaMark", lambda: SimpleNamespace(wait=lambda: None))
    device = CudaDevice()
    device.torch_device = torch.device("cpu")
    arrays = device.download(device.upload([np.arange(3, dtype=np.int64), np.arange(2, dtype=np.int32)]))()
    assert [array.tolist() for array in arrays] == [[0, 1, 2], [0, 1]]
    assert pinned == [48, 24, 8], "the arrays in one piece; each copy"
    assert unhurried == [True] * 3
