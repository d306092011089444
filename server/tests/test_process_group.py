"""Ranks on GPUs, without GPUs: what they ask of torch's group of processes, and of memory that several GPUs map."""

import logging
import socket
from multiprocessing.connection import Connection

import pytest
import torch
import torch.distributed as dist
from ranks_world import CONTEXT, PATIENCE
from torch import Tensor

from headrace_server.distributed import process_group
from headrace_server.distributed.one_shot import OneShotSum, Place, place_of, why_not
from headrace_server.distributed.process_group import ProcessGroup

HERE = place_of(torch.device("cuda", 0)).host
GPU = torch.device("cuda", 0)


class Lifeline:
    """Everybody stays."""

    address = "127.0.0.1"


def serve(rank: int, port: int, pipe: Connection) -> None:
    """A rank of two, whose GPUs' group is gloo's: torch hands both the same calls in the same way."""

    def world(rank: int, world_size: int, store: dist.Store, device: torch.device) -> object:
        if not dist.is_initialized():
            meeting = dist.PrefixStore("nccl", store)
            dist.init_process_group("gloo", store=meeting, rank=rank, world_size=world_size)
        return dist.group.WORLD

    process_group._nccl = world
    store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
    told: list[object] = []
    for in_order in (False, True):
        meeting = dist.PrefixStore(str(in_order), store)
        group = ProcessGroup(rank, 2, meeting, Lifeline(), torch.float32, GPU, in_order)  # type: ignore[arg-type]
        with torch.inference_mode():
            mine = torch.arange(6, dtype=torch.float32).reshape(2, 3) + 10 * rank
            told.append(group.all_reduce(mine.clone()).tolist())
            parts = group.gather(mine)
            told.append(parts and [part.tolist() for part in parts])
            group.broadcast(mine)
            told.append(mine.tolist())
    pipe.send(told)
    pipe.recv()  # the other one has what it needs


def test_ranks_sum_gather_and_pass_on_over_the_group_of_all_processes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    pipes = []
    for rank in range(2):
        mine, theirs = CONTEXT.Pipe()
        CONTEXT.Process(target=serve, args=(rank, port, theirs), daemon=True).start()
        pipes.append(mine)
    assert all(pipe.poll(PATIENCE) for pipe in pipes)
    first, second = (pipe.recv() for pipe in pipes)
    for pipe in pipes:
        pipe.send(None)
    rows = [[0, 1, 2], [3, 4, 5]]
    added = [[10, 12, 14], [16, 18, 20]]
    assert first == [added, [rows, [[10, 11, 12], [13, 14, 15]]], rows] * 2
    assert second == [added, None, rows] * 2


@pytest.mark.parametrize(
    "dtype, places, reason",
    [
        (torch.bfloat16, [Place("a", 0), Place("a", 1)], None),
        (torch.float32, [Place("a", 2), Place("a", 0)], None),
        (torch.float16, [Place("a", 0), Place("a", 1)], "torch adds up no float16 so"),
        (torch.bfloat16, [Place("a", 0), Place("b", 1)], "ranks are on several machines"),
        (torch.bfloat16, [Place("a", 0), Place("a", 0)], "ranks see just their own GPUs"),
        (torch.bfloat16, [Place("a", 0), Place("a", 1), Place("a", 3)], "GPU 0 can't read the memory of GPU 3"),
    ],
    ids=["bfloat16", "float32", "a type that torch's kernel lacks", "two machines", "as Ray shows them", "no link"],
)
def test_who_can_add_up_in_memory_that_all_gpus_map(
    dtype: torch.dtype, places: list[Place], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda mine, other: 3 not in (mine, other))
    said = why_not(dtype, places, 0)
    assert said == reason or (reason is not None and (said or "").startswith(reason))


class Ranks(ProcessGroup):
    """One of several that have met."""

    def __init__(self, *complaints: str, gpu: int = 0) -> None:
        """`complaints`: of the other one, time after time; then it has none."""
        self.rank, self.world_size, self._complaints = 0, 2, iter(complaints)
        self._said = {"place of rank 1": f'["{HERE}", {gpu}]'.encode()}

    def set(self, key: str, value: str) -> None:
        self._said[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._said[key]

    def tell_all(self, mine: str) -> list[str]:
        return [mine, next(self._complaints, "")]

    def small_sum(self) -> OneShotSum | None:
        return self._small_sum(self, torch.bfloat16, GPU)  # type: ignore[arg-type]


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every GPU reads every other one's memory. What was begun, one entry each."""
    begun: list[str] = []
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda *_: True)
    monkeypatch.setattr(OneShotSum, "__init__", lambda *_: begun.append("a buffer"))
    return begun


def test_ranks_that_are_able_make_a_buffer(linked: list[str]) -> None:
    assert isinstance(Ranks(gpu=1).small_sum(), OneShotSum)
    assert linked == ["a buffer"]


def test_none_begins_a_buffer_that_another_rank_cannot_make(
    linked: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """It would wait for that one for ever."""
    with caplog.at_level(logging.INFO, logger="headrace_server"):
        assert Ranks("it has no room", gpu=1).small_sum() is None
        assert Ranks(gpu=0).small_sum() is None
    assert linked == []
    assert [record.getMessage() for record in caplog.records] == [
        "NCCL sums small tensors too: rank 1 says: it has no room",
        "NCCL sums small tensors too: ranks see just their own GPUs",
    ]


def test_a_buffer_that_another_rank_failed_to_make_is_not_used(linked: list[str]) -> None:
    assert Ranks("", "it found no memory", gpu=1).small_sum() is None
    assert linked == ["a buffer"]


def test_where_gpus_share_no_memory_sums_are_left_to_the_collective(
    linked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_here(*_: object) -> None:
        raise RuntimeError("no device of this machine maps another one's memory")

    monkeypatch.setattr(OneShotSum, "__init__", none_here)
    assert Ranks(gpu=1).small_sum() is None


def test_small_tensors_of_its_type_go_through_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's kernel reads 16 bytes at once."""
    one_shot = OneShotSum.__new__(OneShotSum)
    one_shot._buffer = torch.empty(1, dtype=torch.bfloat16)

    def takes(*shape: int, dtype: torch.dtype = torch.bfloat16) -> bool:
        x: Tensor = torch.empty(shape, dtype=dtype, device="meta")
        return one_shot.takes(x)

    assert takes(64, 4096) and takes(1, 8)
    assert not takes(65, 4096) and not takes(1, 4) and not takes(1, 8, dtype=torch.float32)
