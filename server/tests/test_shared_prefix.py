"""A row that starts with blocks another row computed gives bit for bit what it gives from nothing."""

import pytest
from shard_world import BLOCK_SIZE, World, load, random_tokens
from tiny_models import VOCAB_SIZE, TinyModel

from headrace_server.runner import Runner
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import StepResult

SHARED = random_tokens(2 * BLOCK_SIZE, seed=21)
FIRST = [*SHARED, *random_tokens(5, seed=22)]
SECOND = [*SHARED, *random_tokens(11, seed=23)]

# The whole vocabulary's log-probabilities; penalties look at every token of the prompt, computed here or not.
WATCHED = SamplingParameters(logprobs=True, top_n=VOCAB_SIZE, repetition_penalty=1.5, frequency_penalty=0.5)


@pytest.fixture(scope="module")
def runner(tiny_llama: TinyModel) -> Runner:
    return load(tiny_llama.directory)


def reports(result: StepResult) -> tuple[list[int], list[int], list[float]]:
    assert result.error is None and not result.row_errors, (result.error, result.row_errors)
    return result.token_ids.tolist(), result.top_ids.tolist(), result.top_logprobs.tolist()


def compute(world: World, row: int, tokens: list[int], first: int, chunk: int) -> list[StepResult]:
    """A prompt from nothing: `first` tokens, then chunks of at most `chunk`. Equal chunks have equal bits."""
    sizes = [first, *(min(chunk, len(tokens) - at) for at in range(first, len(tokens), chunk))]
    new = {row: (tokens, WATCHED)}
    return [world.step(new=None if at else new, chunks={row: size}) for at, size in enumerate(sizes)]


def continue_from(world: World, row: int, first: int, chunk: int) -> list[StepResult]:
    """SECOND in row 1 with its first tokens in the blocks of another row, the others in chunks."""
    sizes = [min(chunk, len(SECOND) - at) for at in range(first, len(SECOND), chunk)]
    admitted = world.step(new={1: (SECOND, WATCHED)}, chunks={1: sizes[0]}, shared={1: (row, first)})
    return [admitted, *(world.step(chunks={1: size}) for size in sizes[1:])]


def what_follows(world: World, results: list[StepResult]) -> list[tuple[list[int], list[int], list[float]]]:
    """Reports of the step that ended the prompt and of three decodes."""
    return [reports(result) for result in (results[-1], *(world.step(decodes=[1]) for _ in range(3)))]


def cold(runner: Runner, first: int, chunk: int) -> list[tuple[list[int], list[int], list[float]]]:
    world = World(runner)
    return what_follows(world, compute(world, 1, SECOND, first, chunk))


@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_second_row_starts_from_the_blocks_of_the_first(runner: Runner, blocks: int, chunk: int) -> None:
    world, first = World(runner), blocks * BLOCK_SIZE
    compute(world, 0, FIRST, first, 100)
    assert what_follows(world, continue_from(world, 0, first, chunk)) == cold(runner, first, chunk)


def test_the_blocks_outlive_the_row_that_computed_them(runner: Runner) -> None:
    world, first = World(runner), len(SHARED)
    compute(world, 0, FIRST, first, 100)
    kept = world.rows[0].blocks
    world.step(new={0: (random_tokens(30, seed=24), WATCHED)}, chunks={0: 30})
    world.rows[2] = world.held_of(FIRST, kept)
    assert what_follows(world, continue_from(world, 2, first, 100)) == cold(runner, first, 100)


def test_both_rows_go_on_together_without_disturbing_each_other(runner: Runner, tiny_llama: TinyModel) -> None:
    plain = SamplingParameters()
    world = World(runner)
    world.step(new={0: (FIRST, plain)}, chunks={0: len(FIRST)})
    world.step(new={1: (SECOND, plain)}, chunks={1: 11}, decodes=[0], shared={1: (0, len(SHARED))})
    for _ in range(4):
        world.step(decodes=[0, 1])
    assert world.rows[0].answer == tiny_llama.greedy(FIRST, 6)
    assert world.rows[1].answer == tiny_llama.greedy(SECOND, 5)


def test_a_row_with_nothing_left_to_compute_fails_alone(runner: Runner) -> None:
    world = World(runner)
    world.step(new={0: (FIRST, SamplingParameters())}, chunks={0: len(FIRST)})
    shared = {1: (0, len(SHARED))}
    result = world.step(new={1: (SHARED, SamplingParameters())}, chunks={1: 1}, decodes=[0], shared=shared)
    assert list(result.row_errors) == [1]
    assert f"num_computed {len(SHARED)} leaves nothing to compute of {len(SHARED)} tokens" in result.row_errors[1]


@pytest.mark.parametrize("computed", [BLOCK_SIZE // 2, len(SHARED) + 4])
def test_a_row_starts_from_a_copy_of_the_block_in_which_the_other_goes_on(runner: Runner, computed: int) -> None:
    """Another choice of one question: what both write behind the prompt stays their own."""
    prompt = FIRST[: computed + 1]
    world = World(runner)
    world.step(new={1: (prompt, WATCHED)}, chunks={1: computed})
    alone = what_follows(world, [world.step(chunks={1: 1})])
    world = World(runner)
    world.step(new={0: (prompt, WATCHED)}, chunks={0: computed})
    world.step(chunks={0: 1})
    world.step(decodes=[0])
    copied = world.step(new={1: (prompt, WATCHED)}, chunks={1: 1}, shared={1: (0, computed)})
    world.step(decodes=[0])
    assert what_follows(world, [copied]) == alone
    assert world.rows[0].answer == world.rows[1].answer[: len(world.rows[0].answer)]


def test_a_copy_of_a_block_that_the_pool_does_not_have_fails_the_step(runner: Runner) -> None:
    world = World(runner)
    world.step(new={0: (FIRST, SamplingParameters())}, chunks={0: len(FIRST)})
    world.rows[0].blocks[-1] = 10_000
    result = world.step(new={1: (FIRST, SamplingParameters())}, chunks={1: 1}, shared={1: (0, len(FIRST) - 1)})
    assert result.error is not None
    assert "a copy names block 10000, but the pool has" in result.error
