"""Ranks in processes of their own, held by a pipe each: the same call to all, and what each made of it.

They are forked from a server that has torch loaded already, meet once, and then load one model after the other.
"""

import ctypes
import mmap
import multiprocessing
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_world import BLOCK_SIZE, World, on_device
from timed_device import TimedGraph

from headrace_kernels import native
from headrace_server.distributed.collective import Alone
from headrace_server.memory import Limits
from headrace_server.models.config import ModelConfig
from headrace_server.models.registry import read_config
from headrace_server.step import Filter, Step, StepResult

PIECE = 600_000  # bytes
M_MMAP_THRESHOLD = -3
LIBC = ctypes.CDLL(None)
LIBC.malloc.argtypes, LIBC.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
LIBC.free.argtypes, LIBC.free.restype = (ctypes.c_void_p,), None
PATIENCE = 60.0  # seconds for an answer; the machine may be busy
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "ranks_world",
        "headrace_server.compute.on_torch",
        "headrace_server.compute.rank_decoder",
        "headrace_server.distributed.join",
    ]
)


@dataclass(frozen=True)
class Raised:
    """What a call raised."""

    kind: str
    text: str


class Ranks:
    """All ranks of one model, or one that is alone. A context manager: their processes are gone after it."""

    def __init__(self, world_size: int, folder: Path) -> None:
        """`folder`: for what they write to standard error."""
        port = _free_port()
        self.logs = [folder / f"rank-{rank}" for rank in range(world_size)]
        self.pipes: list[Connection] = []
        self.processes = []
        for rank in range(world_size):
            mine, theirs = CONTEXT.Pipe()
            process = CONTEXT.Process(target=_serve, args=(rank, world_size, port, theirs, self.logs[rank]))
            process.start()
            theirs.close()
            self.pipes.append(mine)
            self.processes.append(process)

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.join()

    def each(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        """calls[r] is rank r's: a name of `_Rank` and its arguments. What all returned, or `Raised`."""
        for pipe, call in zip(self.pipes, calls, strict=True):
            pipe.send(call)
        return [self.answer(rank) for rank in range(len(calls))]

    def all(self, *call: Any) -> list[Any]:
        """The same call to all."""
        return self.each([call] * len(self.pipes))

    def answer(self, rank: int) -> Any:
        pipe = self.pipes[rank]
        assert pipe.poll(PATIENCE), f"rank {rank} does not answer; it wrote:\n{self.logs[rank].read_text()}"
        return pipe.recv()

    def load(self, directory: Path, *flags: str, way: str = "C++", method: Any = None) -> "SplitRunner":
        """The model on all ranks: computed in C++, or by torch's layers because all but one have no C++ kernels, or the
        same on a "device" that works beside the host and records graphs.
        `method`: of quantization with torch, if it shall be another than a CPU's."""
        for answer in self.all("load", directory, way, flags, method):
            assert answer is None, answer
        return SplitRunner(self, read_config(directory))

    def wait_until_gone(self, limit: float) -> list[int | None]:
        """Exit codes of all."""
        deadline = time.monotonic() + limit
        for process in self.processes:
            process.join(max(deadline - time.monotonic(), 0))
        return [process.exitcode for process in self.processes]


class SplitRunner:
    """A Runner as `World` sees it: steps go to all ranks, rank 0's results come back."""

    def __init__(self, ranks: Ranks, config: ModelConfig) -> None:
        self.ranks = ranks
        self.config = config

    def warm_up(self, limits: Limits) -> None:
        answers = self.ranks.all("warm_up", limits)
        assert not any(isinstance(answer, Raised) for answer in answers), answers

    def execute(self, step: Step) -> StepResult:
        first, *others = self.ranks.all("execute", step)
        assert isinstance(first, StepResult), first
        assert all(
            other.error == first.error and other.row_errors.keys() <= first.row_errors.keys() for other in others
        )
        return first

    def improve(self) -> bool:
        return self.ranks.all("improve")[0]

    def filter(self, row: int, epoch: int) -> None:
        self.ranks.all("filter", Filter(np.array([row]), np.array([epoch])))


class SplitWorld(World):
    """A router's bookkeeping around several ranks."""

    def _warm_up(self, limits: Limits) -> None:
        self.runner.warm_up(limits)


class _Rank:
    """What a rank's process does when it is called."""

    def __init__(self, collective: Any, pipe: Connection) -> None:
        self._collective = collective
        self._pipe = pipe
        self.runner: Any = None
        self.noted: list[Any] = []
        self.said = 0
        self._taken: list[int] = []

    def load(self, directory: Path, way: str, flags: Sequence[str], chosen: Any) -> None:
        from headrace_server import load
        from headrace_server.flags import parse_serve
        from headrace_server.quantization import method

        words = ["--model-dir", str(directory), "--uds-path", "unused", "--num-threads", "1", "--dtype", "float32"]
        parsed = parse_serve([*words, "--block-size", str(BLOCK_SIZE), *flags])
        load._collective = lambda *_: self._collective  # they have met already
        one_could = self._collective.world_size > 1 and self._collective.rank == 0
        load.native.available = lambda: way == "C++" or one_could
        with pytest.MonkeyPatch.context() as patch:
            if chosen is not None:
                patch.setattr(method, "quantization_method", lambda *_: chosen)
            self.runner = load.load_runner(parsed, read_config(directory))
        assert type(self.runner.compute).__name__ == ("CpuCompute" if way == "C++" else "TorchCompute")
        if way == "device":
            self.runner = on_device(self.runner)

    def prefer(self, backend: str | None) -> None:
        """Kernels of this backend, wherever calls leave the choice open; None: the fastest."""
        from headrace_kernels import backends

        backends._preferred = backend

    def warm_up(self, limits: Limits) -> Any:
        from headrace_server.warmup import warm_up

        return warm_up(self.runner, limits)

    def execute(self, step: Step) -> StepResult:
        return self.runner.execute(step)

    def improve(self) -> bool:
        return self.runner.improve()

    def filter(self, ended: Filter) -> None:
        self.runner.filter(ended)

    def agree(self, act: int, number: int, wanted: bool) -> bool:
        from headrace_server.distributed.collective import Act

        return self.runner.agree(Act(act), number, wanted=lambda: wanted)

    def memory_share(self) -> float:
        return self.runner.compute.available()[1]

    def agree_aloud(self, act: int, number: int) -> bool:
        """Answers once more before: when this rank waits for the others."""
        assert not self.runner.waits_for_ranks
        threading.Thread(target=self._say_that_it_waits, daemon=True).start()
        return self.agree(act, number, True)

    def _say_that_it_waits(self) -> None:
        while not self.runner.waits_for_ranks:
            time.sleep(0.001)
        self._pipe.send("it waits")

    def have_memory(self, available: int) -> None:
        """As if there were only so many bytes."""
        self.runner.compute.available = lambda: (available, 1.0)

    def lose_logits(self) -> None:
        """As if the model's logits were no numbers."""
        decoder = self.runner.compute.decoder
        forward = decoder.forward

        def lost(*arguments: Any) -> Any:
            found = forward(*arguments)
            return replace(found, best_logits=found.best_logits * np.float32("nan"))

        decoder.forward = lost

    def leave_memory(self, size: int) -> None:
        """The system gives this process only so many bytes more, until it is `relieved`."""
        held = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
        resource.setrlimit(resource.RLIMIT_AS, (held + size, resource.RLIM_INFINITY))

    def relieve(self) -> None:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        while self._taken:
            LIBC.free(self._taken.pop())

    def take_all_memory(self) -> None:
        """The system gives this process no more, and what it has to itself is in pieces of PIECE bytes. For one rank
        alone: glibc ends a process that has no memory for the variables of another thread, such as gloo's."""
        LIBC.mallopt(M_MMAP_THRESHOLD, 2**30)  # nothing goes back to the system that could come again as a larger piece
        self.leave_memory(64 * PIECE)
        while piece := LIBC.malloc(PIECE):
            self._taken.append(piece)
        for piece in self._taken[::2]:
            LIBC.free(piece)
        del self._taken[::2]

    def execute_without_memory(self, step: Step) -> StepResult:
        self.take_all_memory()
        try:
            return self.execute(step)
        finally:
            self.relieve()

    def holds_a_pool(self) -> bool:
        compute = self.runner.compute
        if type(compute).__name__ == "TorchCompute":
            pool, stand_in = compute._layers, compute._stand_in
        else:
            pool, stand_in = compute._cache, compute._among and compute._among.stand_in
        return bool(pool) or (stand_in is not None and len(stand_in._memory) > 0)

    def launch_all(self, *steps: Step) -> list[StepResult]:
        """All are launched before the first lands."""
        landings = [self.runner.launch(step) for step in steps]
        return [land() for land in landings]

    def books(self) -> list[Any]:
        """What ranks must agree on, of the rows that are held."""
        rows = self.runner._rows
        held = np.flatnonzero(rows.held)
        return [column[held].tolist() for column in (rows.epoch, rows.prompt, rows.known, rows.computed)] + [
            held.tolist(),
            rows.prefilling[held].tolist(),
            sorted(rows.tokens),
        ]

    def note_exchanges(self) -> None:
        take_part = self._collective.take_part

        def noting(kind: Any, x: Any, room: Any) -> None:
            self.noted.append((kind.name, tuple(x.shape), str(x.dtype)))
            self.said += bool(x.any())
            take_part(kind, x, room)

        self._collective.take_part = noting

    def said_something(self) -> int:
        """Exchanges in which there were other numbers than zero, since the last call."""
        said, self.said = self.said, 0
        return said

    def noted_exchanges(self) -> list[Any]:
        """Since the last call."""
        noted, self.noted = self.noted, []
        return noted

    def sum_as_they_come(self) -> None:
        """As GPUs do without --batch-invariant: large tensors in place, small ones in memory that all can read."""
        self._collective._in_order = False
        self._collective._one_shot = _OneShot(self._collective._devices)

    def run_short_at_exchange(self, number: int, dies_at: int | None = None) -> None:
        """There is no memory for what comes before the exchange of this number, counted from now on. `dies_at`: the
        process ends in that one."""
        take_part, seen = self._collective.take_part, 0

        def short(kind: Any, x: Any, room: Any) -> None:
            nonlocal seen
            seen += 1
            if dies_at is not None and seen > dies_at + 1:  # the one for which there was no memory comes twice
                os._exit(9)
            if seen == number + 1:
                if dies_at is None:
                    self._collective.take_part = take_part
                raise _no_memory()
            take_part(kind, x, room)

        self._collective.take_part = short

    def run_short_in(self, owner: str, name: str) -> None:
        """There is no memory for the next call of this: of a module, or of a part of the compute."""
        self._raise_in(owner, name, _no_memory())

    def run_short_in_c_plus_plus(self) -> None:
        """The next step's memory is refused to the kernels."""
        from headrace_kernels.decoder import cpu

        bound = cpu._begin._function

        def refuse(*_: Any) -> int:
            cpu._begin._function = bound
            return native.OUT_OF_MEMORY

        cpu._begin._function = refuse

    def run_short_while_rehearsing(self) -> None:
        """There is no memory to record a graph in the next warm-up."""
        rehearse = self.runner.compute.rehearse

        def short() -> None:
            self.runner.compute.rehearse = rehearse
            self.run_short_at_exchange(0)
            rehearse()

        self.runner.compute.rehearse = short

    def run_short_after_recording(self) -> None:
        """The device has no memory for the next graph, when all that it does has been captured."""
        device = self.runner.compute._device
        record = device.record

        def short(run: Any) -> None:
            device.record = record
            record(run)
            raise RuntimeError("CUDA error: out of memory\nand advice")

        device.record = short

    def run_short_replaying(self, times: int) -> None:
        """There is no memory to run a graph, so many times."""
        left = times

        def short(graph: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                TimedGraph.replay = replay  # type: ignore[method-assign]
            raise _no_memory()

        replay, TimedGraph.replay = TimedGraph.replay, short  # type: ignore[method-assign]

    def run_short_within_exchanges(self, error: Exception) -> None:
        """What moves tensors has no memory for itself, and says so."""
        self._collective._devices = _Failing(error)

    def break_down_in(self, owner: str, name: str) -> None:
        """The next call fails otherwise."""
        self._raise_in(owner, name, RuntimeError("a bug"))

    def _raise_in(self, owner: str, name: str, error: Exception) -> None:
        place = sys.modules.get(owner) or attrgetter(owner)(self.runner.compute)
        found = getattr(place, name)

        def fail(*_: Any, **__: Any) -> None:
            setattr(place, name, found)
            raise error

        setattr(place, name, fail)

    def lose_device(self) -> None:
        self.runner.compute._device.works = False
        self.run_short_in("_device", "upload")

    def replayed(self) -> int:
        return self.runner.compute._device.replayed


class _Failing:
    """Whatever it is asked for."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error


class _OneShot:
    """Of a GPU's `OneShotSum` the shape."""

    def __init__(self, devices: Any) -> None:
        self._devices = devices

    def takes(self, x: Any) -> bool:
        return len(x) < 4

    def __call__(self, x: Any, total: Any) -> None:
        mine = x.clone()
        self._devices.allreduce(mine).wait()
        total.view(-1).copy_(mine.view(-1))


def _no_memory() -> Exception:
    import torch

    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nand advice")


def _serve(rank: int, world_size: int, port: int, pipe: Connection, log: Path) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    import torch

    torch.set_num_threads(1)
    native.set_num_threads(1)
    me = _Rank(_meet(rank, world_size, port), pipe)
    while True:
        try:
            name, *arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        pipe.send(_outcome(lambda: getattr(me, name)(*arguments)))  # noqa: B023 (called at once)


def _meet(rank: int, world_size: int, port: int) -> Any:
    import torch

    from headrace_server.distributed.join import join
    from headrace_server.distributed.rendezvous import Rendezvous

    if world_size == 1:
        return Alone()
    place = Rendezvous(rank, world_size, "127.0.0.1", port, store_is_up=False)
    return join(place, torch.float32, torch.device("cpu"), lambda: None, settings={}, in_order=False)


def _outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return Raised(type(error).__name__, str(error))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
