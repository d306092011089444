"""One of several ranks has no memory for a step: that step fails, and the group goes on as one rank would."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks_world import Ranks, SplitRunner, SplitWorld
from shard_world import BLOCK_SIZE, GREEDY, random_tokens
from tiny_models import TinyModel, save

from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import Step, StepResult
from test_ranks import MODELS

ASKING = SamplingParameters(logprobs=True, prompt_logprobs=True)
PROMPTS = {row: random_tokens(length, seed=row) for row, length in ((0, 9), (3, 5), (5, 13))}
LAYERS = 3
FORWARD = 1 + 2 * LAYERS  # exchanges: of the embedding, and of each layer two
SHORT = "CUDA out of memory. Tried to allocate 2.00 GiB"
ON_TORCH, ON_CPU = "headrace_server.compute.on_torch", "headrace_server.compute.on_cpu"
HOST_BYTES = 8 * BLOCK_SIZE * 2 * 3 * 16 * 4  # a token: keys and values · layers · a head · float32


class Router(SplitRunner):
    """Puts the ranks' answers together: an error of any rank counts."""

    def execute(self, step: Step) -> StepResult:
        return merged(self.ranks.all("execute", step))


def merged(answers: list[StepResult]) -> StepResult:
    first = answers[0]
    assert isinstance(first, StepResult), first
    if failed := [answer for answer in answers if answer.error is not None]:
        lacked = all(answer.out_of_memory for answer in failed)
        return StepResult(first.number, error=failed[0].error, out_of_memory=lacked)
    first.row_errors = {row: why for answer in answers for row, why in answer.row_errors.items()}
    return first


class Recovering(SplitWorld):
    """Does with a step that found no memory what a router does."""

    def __init__(self, runner: SplitRunner, *, records: bool = True, **limits: Any) -> None:
        router = Router(runner.ranks, runner.config)
        if not records:
            router.improve = lambda: False  # type: ignore[method-assign]
        super().__init__(router, **limits)
        self.ranks = runner.ranks

    def begin(self) -> None:
        """Rows 0 and 3 decode."""
        for row in (0, 3):
            self.step(new={row: (PROMPTS[row], GREEDY)}, chunks={row: len(PROMPTS[row])})

    def fails(self, *rows: int, **step: Any) -> None:
        """The step finds no memory. Its rows are computed again, one by one."""
        result = self.step(**step)
        assert result.out_of_memory and SHORT in (result.error or ""), result.error
        books = self.ranks.all("books")
        assert books == [books[0]] * len(books)
        for row in rows:
            self.again(row)

    def again(self, row: int) -> None:
        held = self.rows[row]
        self.runner.filter(row, held.epoch)
        self.forget(row)
        self.step(new={row: (held.tokens, GREEDY)}, generated={row: len(held.answer)}, chunks={row: len(held.tokens)})

    def all_is_well(self, model: TinyModel, *rows: int) -> None:
        self.step(decodes=rows)
        for row in rows:
            assert self.rows[row].answer == model.greedy(PROMPTS[row], len(self.rows[row].answer))


@pytest.fixture(scope="module", params=[2, 3], ids=lambda count: f"{count} ranks")
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    with Ranks(request.param, tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Ranks]:
    """For tests that end or change them."""
    with Ranks(2, tmp_path) as ranks:
        yield ranks


def only(ranks: Ranks, victim: int, *call: Any) -> None:
    """The call to one rank."""
    ranks.pipes[victim].send(call)
    assert ranks.answer(victim) is None


@pytest.mark.parametrize("way", ["torch", "C++"])
@pytest.mark.parametrize("victim", [0, 1], ids=lambda rank: f"rank {rank}")
def test_wherever_in_a_step_memory_is_missing_its_rows_are_computed_again(
    victim: int, way: str, ranks: Ranks, tiny_llama: TinyModel
) -> None:
    """Before the first exchange, between any two, in the gather of logits, and in passing tokens on."""
    world = Recovering(ranks.load(tiny_llama.directory, way=way))
    world.begin()
    for number in range(FORWARD + 2):
        only(ranks, victim, "run_short_at_exchange", number)
        world.fails(0, 3, 5, new={5: (PROMPTS[5], GREEDY)}, chunks={5: 13}, decodes=[0, 3])
        world.all_is_well(tiny_llama, 0, 3, 5)
        world.forget(5)


@pytest.mark.parametrize("victim", [0, 1], ids=lambda rank: f"rank {rank}")
def test_nor_does_it_matter_what_for(victim: int, ranks: Ranks, tiny_llama: TinyModel) -> None:
    world = Recovering(ranks.load(tiny_llama.directory, way="torch"), max_total_tokens=64, host_bytes=HOST_BYTES)
    world.begin()
    for place, name in (
        ("_device", "mark"),
        ("_device", "upload"),
        ("model._norm", "add"),
        ("_device", "download"),
        (ON_TORCH, "Computed"),  # when the step lands
    ):
        only(ranks, victim, "run_short_in", place, name)
        world.fails(0, 3, decodes=[0, 3])
    if victim == 0:
        only(ranks, victim, "run_short_in", "_sampler", "sample")
        world.fails(0, 3, decodes=[0, 3])
    only(ranks, victim, "run_short_in", ON_TORCH, "copy_blocks")
    shared = {5: (0, 9)}
    world.fails(0, 3, 5, new={5: (PROMPTS[0] + [1], GREEDY)}, chunks={5: 1}, decodes=[0, 3], shared=shared)
    only(ranks, victim, "run_short_in", "headrace_server.compute.swap_on_torch", "swap_out")
    world.fails(0, 3, decodes=[0, 3], swaps_out=[(world.rows[5].blocks[0], 1)])
    world.all_is_well(tiny_llama, 0, 3)
    # Of what a failed step moved all ranks say the same, whatever a router makes of it.
    assert world.step(decodes=[0, 3], swaps_back=[(1, world.free[0])]).error is None
    assert "holds nothing" in (world.step(decodes=[0, 3], swaps_back=[(1, world.free[0])]).error or "")


@pytest.mark.parametrize("victim", [0, 1], ids=lambda rank: f"rank {rank}")
def test_nor_where_c_plus_plus_computes(victim: int, ranks: Ranks, tiny_llama: TinyModel) -> None:
    world = Recovering(ranks.load(tiny_llama.directory), max_total_tokens=64, host_bytes=HOST_BYTES)
    world.begin()
    for place, name in (
        (ON_CPU, "build_batch"),
        ("decoder._decoder", "forward_among_ranks"),
        ("decoder", "_padded"),
        (ON_CPU, "Computed"),
    ):
        only(ranks, victim, "run_short_in", place, name)
        world.fails(0, 3, decodes=[0, 3])
    only(ranks, victim, "run_short_in_c_plus_plus")
    result = world.step(decodes=[0, 3])
    assert result.out_of_memory and "decoder_begin: no memory for a thread's scratch space" in (result.error or "")
    for row in (0, 3):
        world.again(row)
    if victim == 0:
        only(ranks, victim, "run_short_in", ON_CPU, "likeliest")
        world.fails(0, 3, decodes=[0, 3])
    only(ranks, victim, "run_short_in", ON_CPU, "_copy_blocks")
    shared = {5: (0, 9)}
    world.fails(0, 3, 5, new={5: (PROMPTS[0] + [1], GREEDY)}, chunks={5: 1}, decodes=[0, 3], shared=shared)
    only(ranks, victim, "run_short_in", ON_CPU, "_copy_blocks")
    world.fails(0, 3, decodes=[0, 3], swaps_out=[(world.rows[5].blocks[0], 1)])
    world.all_is_well(tiny_llama, 0, 3)


@pytest.mark.parametrize("way", ["torch", "C++"])
def test_what_a_step_says_of_its_prompts_is_gone_through_too(way: str, ranks: Ranks, tiny_llama: TinyModel) -> None:
    """Logits of a prompt are gathered before those of rows that sample, or after."""
    world = Recovering(ranks.load(tiny_llama.directory, way=way))
    world.begin()
    for number in range(FORWARD, FORWARD + 3):
        only(ranks, 1, "run_short_at_exchange", number)
        world.fails(0, 3, 5, new={5: (PROMPTS[5], ASKING)}, chunks={5: 13}, decodes=[0, 3])
        world.all_is_well(tiny_llama, 0, 3, 5)
        world.forget(5)
    only(ranks, 1, "run_short_at_exchange", 0)
    world.fails(new={5: (PROMPTS[5], ASKING)}, chunks={5: 4})  # it does not sample yet
    world.forget(5)
    world.all_is_well(tiny_llama, 0, 3)


@pytest.mark.parametrize("name", MODELS)
def test_what_ranks_exchange_in_a_step_is_known_before(name: str, two: Ranks, tmp_path: Path) -> None:
    kind, changes = MODELS[name]
    model = save(kind, tmp_path / "model", **changes)
    two.all("note_exchanges")
    for way in ("torch", "C++"):
        world = Recovering(two.load(model.directory, way=way))
        world.begin()
        two.all("noted_exchanges")
        step: dict[str, Any] = {"new": {5: (PROMPTS[5], ASKING)}, "chunks": {5: 13}, "decodes": [0, 3]}
        world.step(**step)
        joined = two.all("noted_exchanges")
        assert joined[0] == joined[1]
        world.forget(5)
        only(two, 1, "run_short_at_exchange", 0)
        two.all("said_something")
        world.fails(**step)
        assert two.all("noted_exchanges") == joined
        assert two.all("said_something")[1] == 0


def test_two_ranks_without_memory_in_one_step(ranks: Ranks, tiny_llama: TinyModel) -> None:
    world = Recovering(ranks.load(tiny_llama.directory, way="torch"))
    world.begin()
    only(ranks, 0, "run_short_at_exchange", 2)
    only(ranks, 1, "run_short_at_exchange", 5)
    world.fails(0, 3, decodes=[0, 3])
    world.all_is_well(tiny_llama, 0, 3)


def test_the_next_step_was_launched_meanwhile(ranks: Ranks, tiny_llama: TinyModel) -> None:
    """Its rows that were in the step that failed fail, those that were not go on."""
    world = Recovering(ranks.load(tiny_llama.directory, way="device"))
    world.begin()
    steps = [decode_step(world, 0), decode_step(world, 0, 3)]
    only(ranks, 1, "run_short_in", "_device", "upload")
    first, second = map(merged, zip(*ranks.all("launch_all", *steps), strict=True))
    assert first.out_of_memory
    assert second.error is None
    assert list(second.row_errors) == [0] and SHORT in second.row_errors[0]
    world.rows[3].tokens.append(int(second.token_ids[1]))
    world.again(0)
    world.all_is_well(tiny_llama, 0, 3)


def decode_step(world: Recovering, *rows: int) -> Step:
    """The world's books are as if it had landed."""
    nothing = np.empty(0, np.int64)
    world.steps += 1
    tables = [world._table(row, 1) for row in rows]
    for row in rows:
        world.rows[row].computed += 1
    lengths = np.array([len(table) for table in tables])
    return Step.of(world.steps, (), nothing, nothing, np.array(rows), lengths, np.concatenate(tables))


def test_a_recorded_step_is_run_for_nobody(ranks: Ranks, tiny_llama: TinyModel) -> None:
    """What ranks exchange in a graph only the graph can do."""
    world = Recovering(ranks.load(tiny_llama.directory, way="device"))
    world.begin()
    only(ranks, 1, "run_short_in", "_device", "upload")
    before = ranks.all("replayed")
    world.fails(0, 3, decodes=[0, 3])
    assert ranks.all("replayed") == [count + 1 for count in before]
    only(ranks, 1, "run_short_in", "_device", "download")  # when all has been exchanged
    world.fails(0, 3, decodes=[0, 3])
    world.all_is_well(tiny_llama, 0, 3)
    only(ranks, 0, "run_short_in", "_sampler", "sample")
    world.fails(0, 3, decodes=[0, 3])
    world.all_is_well(tiny_llama, 0, 3)
    only(ranks, 1, "run_short_in", "_device", "upload")
    world.fails(3, decodes=[3])  # not for row 0, who was in the step before
    for _ in range(4):
        world.all_is_well(tiny_llama, 0, 3)


@pytest.mark.parametrize("number", [0, FORWARD + 3], ids=["before it is captured", "while it is captured"])
def test_a_graph_that_one_rank_has_no_memory_for_none_has(number: int, ranks: Ranks, tiny_llama: TinyModel) -> None:
    world = Recovering(ranks.load(tiny_llama.directory, way="device"), records=False)
    assert ranks.all("improve") == [True] * len(ranks.pipes)  # of one row
    only(ranks, 1, "run_short_at_exchange", number)
    assert ranks.all("improve") == [False] * len(ranks.pipes)
    assert ranks.all("improve") == [False] * len(ranks.pipes)
    world.begin()
    before = ranks.all("replayed")
    world.all_is_well(tiny_llama, 0, 3)  # kernel by kernel
    world.all_is_well(tiny_llama, 0)
    assert ranks.all("replayed") == [count + 1 for count in before]


def test_a_graph_is_run_for_nobody_when_there_was_no_memory_to_run_it(ranks: Ranks, tiny_llama: TinyModel) -> None:
    world = Recovering(ranks.load(tiny_llama.directory, way="device"))
    world.begin()
    only(ranks, 1, "run_short_replaying", 1)
    world.fails(0, 3, decodes=[0, 3])
    world.all_is_well(tiny_llama, 0, 3)


def test_a_graph_that_there_is_no_memory_to_run_for_nobody_ends_all(two: Ranks, tiny_llama: TinyModel) -> None:
    """Only the graph can do what ranks exchange in it."""
    world = Recovering(two.load(tiny_llama.directory, way="device"))
    world.begin()
    only(two, 1, "run_short_replaying", 2)
    with pytest.raises((EOFError, ConnectionResetError)):
        world.step(decodes=[0, 3])
    assert two.wait_until_gone(5) == [3, 1]
    assert f"rank 1 failed: unexpected OutOfMemoryError: {SHORT}" in two.logs[0].read_text().splitlines()[-1]


def test_a_recording_that_fails_otherwise_ends_all(two: Ranks, tiny_llama: TinyModel) -> None:
    """Others may be anywhere in it."""
    Recovering(two.load(tiny_llama.directory, way="device"), records=False)
    only(two, 1, "break_down_in", "model._norm", "add")
    with pytest.raises((EOFError, ConnectionResetError)):
        two.all("improve")
    assert two.wait_until_gone(5) == [3, 1]
    assert "rank 1 failed: unexpected RuntimeError: a bug" in two.logs[0].read_text().splitlines()[-1]


def test_a_graph_for_which_the_device_itself_has_no_memory_none_has(ranks: Ranks, tiny_llama: TinyModel) -> None:
    world = Recovering(ranks.load(tiny_llama.directory, way="device"), records=False)
    only(ranks, 1, "run_short_after_recording")
    assert ranks.all("improve") == [False] * len(ranks.pipes)
    world.begin()
    world.all_is_well(tiny_llama, 0, 3)


def test_ranks_that_add_up_as_gpus_do(two: Ranks, tiny_llama: TinyModel) -> None:
    """Without room for the others' tensors."""
    two.all("sum_as_they_come")
    world = Recovering(two.load(tiny_llama.directory, way="torch"))
    world.begin()
    for number in (0, 3):
        only(two, 1, "run_short_at_exchange", number)
        world.fails(0, 3, decodes=[0, 3])
        only(two, 1, "run_short_at_exchange", number)
        world.fails(5, new={5: (PROMPTS[5], GREEDY)}, chunks={5: 13})
        world.all_is_well(tiny_llama, 0, 3, 5)
        world.forget(5)


def test_a_rank_that_dies_while_it_goes_on_takes_the_others_along(two: Ranks, tiny_llama: TinyModel) -> None:
    world = Recovering(two.load(tiny_llama.directory, way="torch"))
    world.begin()
    only(two, 1, "run_short_at_exchange", 2, 4)
    with pytest.raises((EOFError, ConnectionResetError)):
        world.step(decodes=[0, 3])
    assert two.wait_until_gone(5) == [3, 9]
    assert two.logs[0].read_text().splitlines()[-1] == "error: rank 1 is gone; this rank is of no use without it"


NCCL = """NCCL error in: NCCLUtils.cpp:1, unhandled cuda error (run with NCCL_DEBUG=INFO for details)
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 2 'out of memory'"""


@pytest.mark.parametrize(
    ("error", "words"),
    [(RuntimeError(NCCL), "Cuda failure 2 'out of memory'"), (MemoryError("std::bad_alloc"), "std::bad_alloc")],
    ids=["NCCL", "gloo"],
)
def test_an_exchange_that_has_no_memory_for_itself_ends_all(
    error: Exception, words: str, two: Ranks, tiny_llama: TinyModel
) -> None:
    """Nobody knows what the others have of it."""
    world = Recovering(two.load(tiny_llama.directory, way="torch"))
    world.begin()
    only(two, 1, "run_short_within_exchanges", error)
    with pytest.raises((EOFError, ConnectionResetError)):
        world.step(decodes=[0, 3])
    assert two.wait_until_gone(5) == [3, 1]
    said = f"there is no memory for what ranks exchange: {words}"
    assert two.logs[1].read_text().splitlines()[-1] == f"error: {said}"
    assert f"rank 1 failed: {said}" in two.logs[0].read_text().splitlines()[-1]


def test_a_device_that_is_lost_ends_all(two: Ranks, tiny_llama: TinyModel) -> None:
    world = Recovering(two.load(tiny_llama.directory, way="device"))
    world.begin()
    only(two, 1, "lose_device")
    with pytest.raises((EOFError, ConnectionResetError)):
        world.step(decodes=[0, 3])
    assert two.wait_until_gone(5) == [3, 1]
    assert f"rank 1 failed: cpu has failed for good: {SHORT}" in two.logs[0].read_text().splitlines()[-1]
