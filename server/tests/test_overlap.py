"""A device that works beside the host: the next step is launched before the one before has landed, and decode steps are
recorded as graphs. Nobody's tokens change."""

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from shard_world import (
    BLOCK_SIZE,
    GREEDY,
    NO_ROWS,
    World,
    load,
    load_on_device,
    load_on_torch,
    on_logits,
    random_tokens,
)
from timed_device import TimedDevice
from tiny_models import TinyModel
from torch import Tensor

from headrace_server.compute.graphs import graph_sizes
from headrace_server.compute.on_torch import TorchCompute, TorchStep
from headrace_server.devices.interface import Graph, Memory
from headrace_server.memory import Limits
from headrace_server.model_thread import Later, ModelThread
from headrace_server.runner import IMPOSSIBLE, Landing, Runner
from headrace_server.sampling.on_gpu import DeviceSampler
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import Filter, NewRow, Step
from headrace_server.warmup import warm_up

PROMPTS = {0: random_tokens(20, seed=11), 1: random_tokens(9, seed=12)}


def decode(world: World, *rows: int) -> Landing:
    """Launch a decode step; the world's books are as if it had landed."""
    for row in rows:
        world.rows[row].computed += 1
    tables = [world._table(row, 0) for row in rows]
    world.steps += 1
    return world.runner.launch(
        Step.of(
            number=world.steps,
            new_rows=(),
            chunk_rows=NO_ROWS,
            chunk_tokens=NO_ROWS,
            decode_rows=np.array(rows, np.int64),
            table_lengths=np.array([len(table) for table in tables]),
            table_blocks=np.concatenate([np.array(table, np.int64) for table in tables]),
        )
    )


@pytest.fixture
def device() -> TimedDevice:
    return TimedDevice()


@pytest.fixture
def world(device: TimedDevice, tiny_llama: TinyModel) -> World:
    """Two rows that decode."""
    world = World(load_on_device(tiny_llama.directory, device))
    world.step(new={row: (prompt, GREEDY) for row, prompt in PROMPTS.items()}, chunks={0: 20, 1: 9})
    return world


def test_the_next_step_is_launched_before_the_last_has_landed(world: World, tiny_llama: TinyModel) -> None:
    landings = [decode(world, 0, 1) for _ in range(5)]
    answers = {row: list(world.rows[row].answer) for row in PROMPTS}
    for land in landings:
        for row, token in zip(PROMPTS, land().token_ids.tolist(), strict=True):
            answers[row].append(token)
    assert answers == {row: tiny_llama.greedy(prompt, 6) for row, prompt in PROMPTS.items()}


def test_penalties_know_the_tokens_of_steps_that_have_not_landed(
    tiny_llama: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's sampler counts them itself; the tokens are those of steps that each wait for the last."""
    parameters = (
        SamplingParameters(temperature=0.9, seed=3, frequency_penalty=1.5, top_p=0.95),
        SamplingParameters(repetition_penalty=1.5, presence_penalty=3.0),
    )
    new = {row: (prompt, parameters[row]) for row, prompt in PROMPTS.items()}
    waiting = World(load_on_torch(tiny_llama.directory), max_rows=2)
    waiting.step(new=new, chunks={0: 7, 1: 9})
    waiting.step(chunks={0: 13}, decodes=[1])
    for _ in range(4):
        waiting.step(decodes=[0, 1])

    def on_gpu(compute: TorchCompute, max_rows: int) -> DeviceSampler:
        return DeviceSampler(max_rows, compute.config.vocab_size, torch.device("cpu"))

    monkeypatch.setattr(TorchCompute, "_new_sampler", on_gpu)
    world = World(load_on_device(tiny_llama.directory), max_rows=2)
    world.step(new=new, chunks={0: 7, 1: 9})
    world.step(chunks={0: 13}, decodes=[1])
    for land in [decode(world, 0, 1) for _ in range(4)]:
        for row, token in enumerate(land().token_ids.tolist()):
            world.rows[row].tokens.append(token)
    assert [world.rows[row].answer for row in PROMPTS] == [waiting.rows[row].answer for row in PROMPTS]


def test_decode_steps_are_replayed_with_padding(world: World, device: TimedDevice, tiny_llama: TinyModel) -> None:
    third = random_tokens(3, seed=13)
    world.free.sort(reverse=True)  # it gets block 0, which padding must leave alone as any other
    world.step(new={5: (third, GREEDY)}, chunks={5: 3}, decodes=[0, 1])
    before = device.replayed
    for _ in range(4):
        world.step(decodes=[0, 1, 5])  # three rows in the graph of four
    assert device.replayed == before + 4
    assert world.rows[5].answer == tiny_llama.greedy(third, 5)
    assert world.rows[0].answer == tiny_llama.greedy(PROMPTS[0], 6)


def test_graphs_are_recorded_smallest_first_and_steps_do_without_until_then(tiny_llama: TinyModel) -> None:
    device = TimedDevice()
    runner = load_on_device(tiny_llama.directory, device)
    runner.improve = lambda: False  # type: ignore[method-assign]
    world = World(runner)
    world.step(new={row: (prompt, GREEDY) for row, prompt in PROMPTS.items()}, chunks={0: 20, 1: 9})
    recorded = device.recorded  # the rehearsal's
    world.step(decodes=[0, 1])
    assert (device.replayed, recorded) == (0, 1)
    assert runner.compute.improve()  # one row
    world.step(decodes=[0, 1])
    world.step(decodes=[0])
    assert device.replayed == 1
    assert world.rows[0].answer == tiny_llama.greedy(PROMPTS[0], 4)


def test_graphs_for_which_there_is_no_memory_are_done_without(
    tiny_llama: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = TimedDevice()
    runner = load_on_device(tiny_llama.directory, device)
    runner.improve = lambda: False  # type: ignore[method-assign]
    world = World(runner)
    assert runner.compute.improve()  # one row
    record = device.record

    def short(run: Callable[[], Tensor]) -> Graph:
        monkeypatch.setattr(runner.compute.model, "logits", none_left)
        return record(run)

    def none_left(hidden: Tensor) -> Tensor:
        monkeypatch.undo()
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(device, "record", short)
    assert not runner.compute.improve()
    assert not runner.compute.improve()
    world.step(new={row: (prompt, GREEDY) for row, prompt in PROMPTS.items()}, chunks={0: 20, 1: 9})
    world.step(decodes=[0, 1])
    world.step(decodes=[0])
    assert device.replayed == 1
    assert world.rows[0].answer == tiny_llama.greedy(PROMPTS[0], 3)


def test_steps_are_rehearsed_beside_what_graphs_take(tiny_llama: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server has its graphs when the largest prompt step comes."""
    runner, seen = load_on_device(tiny_llama.directory), []
    launch = TorchCompute.launch

    def noting(compute: TorchCompute, *step: Any) -> TorchStep:
        assert compute._graphs is not None
        seen.append(compute._graphs._rehearsed)
        return launch(compute, *step)

    monkeypatch.setattr(TorchCompute, "launch", noting)
    warm_up(runner, Limits(4, 32, 64, None))
    *rehearsed, served = seen
    assert all(kept is not None for kept in rehearsed) and served is None
    assert rehearsed[0].size == 4
    assert [tuple(logits.shape) for logits in rehearsed[0].room] == [(rows, 97) for rows in (1, 2)]


def test_graph_sizes() -> None:
    assert graph_sizes([8, 2, 300, 0], 100) == [2, 8]
    assert graph_sizes([], 100) == []
    sizes = graph_sizes(None, 200)
    assert sizes[:6] == [1, 2, 4, 8, 16, 24] and sizes[-1] == 200
    assert all(later <= 2 * earlier for earlier, later in pairwise(sizes))


def test_a_row_without_finite_logits_fails_in_the_step_that_was_launched_meanwhile_too(
    world: World, tiny_llama: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = iter([True, False])

    def spoil(logits: np.ndarray) -> None:
        if next(broken):
            logits[1] = np.nan

    on_logits(world.runner, monkeypatch, spoil)
    first, second = decode(world, 0, 1), decode(world, 0, 1)
    results = [first(), second()]
    assert [result.row_errors for result in results] == [{1: IMPOSSIBLE}, {1: IMPOSSIBLE}]
    assert [int(result.token_ids[0]) for result in results] == tiny_llama.greedy(PROMPTS[0], 3)[1:]


def test_who_takes_a_row_while_its_last_step_runs_does_not_inherit_the_failure(
    world: World, tiny_llama: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        on_logits(world.runner, patch, lambda logits: logits[1].fill(np.nan))
        failing = decode(world, 0, 1)
    newcomer = random_tokens(7, seed=14)
    blocks = [world.free.pop()]
    taken = world.runner.launch(
        Step.of(
            number=99,
            new_rows=(NewRow(1, 1000, np.array(newcomer), 0, 0, GREEDY),),
            chunk_rows=np.array([1]),
            chunk_tokens=np.array([7]),
            decode_rows=NO_ROWS,
            table_lengths=np.array([1]),
            table_blocks=np.array(blocks),
        )
    )
    assert failing().row_errors == {1: IMPOSSIBLE}
    result = taken()
    assert result.row_errors == {}
    assert result.token_ids.tolist() == tiny_llama.greedy(newcomer, 1)


def test_a_step_without_memory_says_so_and_the_one_behind_it_fails_row_by_row(
    world: World, device: TimedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError("16 GiB were asked for\nand more")

    before = decode(world, 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(world.runner.compute, "launch", no_memory)
        failing = decode(world, 0, 1)
    behind = decode(world, 0, 1)
    assert before().row_errors == {}, "it had been launched when memory ran out"
    result = failing()
    assert (result.error, result.out_of_memory) == ("out of memory in a step of 2 tokens: 16 GiB were asked for", True)
    assert sorted(behind().row_errors) == [0, 1]
    assert device.relieved == 1


def test_a_device_that_is_lost_ends_the_process_with_its_name(
    world: World, device: TimedDevice, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def ended(code: int) -> None:
        raise SystemExit(code)

    def broken(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nand advice")

    device.works = False
    monkeypatch.setattr("os._exit", ended)
    monkeypatch.setattr(world.runner.compute, "launch", broken)
    with pytest.raises(SystemExit, match="1"):
        decode(world, 0)
    said = "error: cpu has failed for good: CUDA error: an illegal memory access was encountered\n"
    assert capsys.readouterr().err.endswith(said)


def test_prompt_log_probabilities_cross_chunks_in_flight(tiny_llama: TinyModel) -> None:
    """The last value of a chunk belongs to the next one, which is launched before it is known. Who asked may have left,
    and another have taken the row, before either lands."""
    prompt, asking = random_tokens(20, seed=11), SamplingParameters(prompt_logprobs=True)
    blocks = -(-20 // BLOCK_SIZE)

    def step(number: int, epoch: int, count: int) -> Step:
        new = (NewRow(0, epoch, np.array(prompt), 0, 0, asking),) if count == 8 else ()
        return Step.of(number, new, np.array([0]), np.array([count]), NO_ROWS, np.array([blocks]), np.arange(blocks))

    def tell(runner: Runner, together: bool) -> list[float]:
        World(runner)
        told: list[float] = []
        landings: list[Landing] = []
        for number, count in ((1, 8), (2, 12)):
            landings.append(runner.launch(step(number, 7, count)))
            if not together:
                told.extend(landings.pop()().prompt_logprobs.tolist())
        runner.filter(Filter(np.array([0]), np.array([7])))
        runner.launch(step(3, 9, 8))
        return told + [value for land in landings for value in land().prompt_logprobs.tolist()]

    expected = tell(load(tiny_llama.directory), together=False)
    assert np.isnan(expected[0]) and len(expected) == 20
    np.testing.assert_allclose(tell(load_on_device(tiny_llama.directory), together=True), expected, atol=1e-4)


def test_what_steps_need_is_left_beside_the_pool(tiny_llama: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    device = TimedDevice()
    monkeypatch.setattr(device, "memory", lambda fraction: Memory(2**32, fraction))  # other programs take none of it
    runner = load_on_device(tiny_llama.directory, device)
    limits = Limits(4, 32, 0, None)
    before = warm_up(runner, limits)
    device.worst = 10**9
    after = warm_up(runner, limits)
    assert device.rehearsed == 2
    # Of what rehearsed steps took, the small pool that they had is given back.
    assert 0 < 10**9 - (before.available_bytes - after.available_bytes) < 10**6


def test_the_model_thread_goes_on_while_a_result_is_waited_for() -> None:
    async def scenario() -> list[str]:
        order: list[str] = []
        answered = asyncio.Event()
        released = threading.Event()
        model = ModelThread()

        def wait() -> str:
            assert released.wait(30)
            return "late"

        async def note(name: str, future: asyncio.Future) -> None:
            order.append(f"{name}: {await future}")
            answered.set()

        later = note("first", model.submit(lambda: Later(wait)))
        soon = note("second", model.submit(lambda: "at once"))
        waiting = asyncio.gather(later, soon)
        await answered.wait()
        released.set()
        await waiting
        return order

    assert asyncio.run(scenario()) == ["second: at once", "first: late"]


def test_quiet_moments_are_used_until_there_is_nothing_to_do() -> None:
    async def scenario() -> int:
        model = ModelThread()
        calls: list[float] = []
        done = threading.Event()

        def improve() -> bool:
            calls.append(time.monotonic())
            if len(calls) == 2:
                done.set()
            return len(calls) < 2

        model.when_quiet(improve)
        await model.submit(lambda: None)
        assert await asyncio.to_thread(done.wait, 30)
        await model.submit(lambda: None)
        return len(calls)

    assert asyncio.run(scenario()) == 2
