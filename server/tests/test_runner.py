"""Steps through the runner: reports, and failures that stay where they belong."""

import numpy as np
import pytest
import torch
from shard_world import BLOCK_SIZE, COMPUTES, GREEDY, World, load, on_logits, random_tokens
from tiny_models import VOCAB_SIZE, TinyModel

from headrace_server.runner import Runner
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import StepResult

PROMPT = random_tokens(20, seed=11)
OTHER = random_tokens(9, seed=12)


@pytest.fixture(scope="module", params=COMPUTES)
def runner(request: pytest.FixtureRequest, tiny_llama: TinyModel) -> Runner:
    return COMPUTES[request.param](tiny_llama.directory)


@pytest.fixture
def world(runner: Runner) -> World:
    """Row 0 decodes; it must not notice what happens to others."""
    world = World(runner)
    world.step(new={0: (PROMPT, GREEDY)}, chunks={0: len(PROMPT)})
    return world


def assert_only_fails(result: StepResult, row: int, message: str) -> None:
    assert result.error is None
    assert list(result.row_errors) == [row]
    assert message in result.row_errors[row]


def neighbour_goes_on(world: World, model: TinyModel) -> None:
    while len(world.rows[0].answer) < 6:
        world.step(decodes=[0])
    assert world.rows[0].answer == model.greedy(PROMPT, 6)


@pytest.mark.parametrize(
    ("tokens", "parameters", "message"),
    [
        ([], GREEDY, "has no tokens"),
        ([VOCAB_SIZE], GREEDY, f"token id {VOCAB_SIZE} is outside the vocabulary of {VOCAB_SIZE}"),
        ([1], SamplingParameters(temperature=float("nan")), "temperature nan"),
        ([1], SamplingParameters(top_n=10**9), "top_n"),
    ],
    ids=["empty", "unknown token", "temperature", "top_n"],
)
def test_a_bad_request_fails_alone(
    tokens: list[int], parameters: SamplingParameters, message: str, world: World, tiny_llama: TinyModel
) -> None:
    result = world.step(new={3: (tokens, parameters)}, chunks={3: max(len(tokens), 1)}, decodes=[0])
    assert_only_fails(result, 3, message)
    assert result.token_ids[0] == 0
    again = world.step(decodes=[3, 0])
    assert_only_fails(again, 3, message)
    neighbour_goes_on(world, tiny_llama)


def test_a_chunk_past_the_known_tokens_fails_alone(world: World, tiny_llama: TinyModel) -> None:
    result = world.step(new={3: (OTHER, GREEDY)}, chunks={3: len(OTHER) + 1}, decodes=[0])
    assert_only_fails(result, 3, "row 3 has 0 of 9 tokens computed; it cannot go on to 10")
    neighbour_goes_on(world, tiny_llama)


def test_a_decode_before_the_prompt_is_done_fails_alone(world: World, tiny_llama: TinyModel) -> None:
    world.step(new={3: (OTHER, GREEDY)}, chunks={3: len(OTHER) - 1}, decodes=[0])
    assert_only_fails(world.step(decodes=[0, 3]), 3, "row 3 has 8 of 9 tokens computed")
    neighbour_goes_on(world, tiny_llama)


def test_a_short_block_table_fails_alone(world: World, tiny_llama: TinyModel) -> None:
    world.step(new={3: (OTHER, GREEDY)}, chunks={3: 2}, decodes=[0])
    table, world.rows[3].blocks = world.rows[3].blocks, []
    world._table = lambda row, _: world.rows[row].blocks  # type: ignore[method-assign]
    assert_only_fails(world.step(chunks={3: 7}, decodes=[0]), 3, f"row 3 has 0 blocks of {BLOCK_SIZE} tokens")
    assert table
    del world._table
    neighbour_goes_on(world, tiny_llama)


def test_a_block_outside_the_pool_fails_alone(world: World, tiny_llama: TinyModel) -> None:
    world.free.append(10**6)
    result = world.step(new={3: (OTHER[:5], GREEDY)}, chunks={3: 5}, decodes=[0])
    assert_only_fails(result, 3, "row 3 names block 1000000, but the pool has 256")
    neighbour_goes_on(world, tiny_llama)


def test_a_row_past_the_served_context_fails_alone(runner: Runner) -> None:
    world = World(runner, max_total_tokens=21)
    world.generate({0: PROMPT}, 2)
    assert_only_fails(world.step(decodes=[0]), 0, "row 0 reaches 22 tokens, but 21 are served")


def test_failed_rows_keep_their_places_in_every_array(world: World) -> None:
    asked = SamplingParameters(logprobs=True, top_n=2, prompt_logprobs=True)
    bad = SamplingParameters(logprobs=True, top_n=2, prompt_logprobs=True, top_p=2.0)
    result = world.step(new={3: (OTHER, bad), 4: (OTHER, asked)}, chunks={3: 9, 4: 9}, decodes=[0])
    assert result.token_ids[0] == 0
    assert (result.token_ids[1], len(result.token_ids)) == (result.top_ids[2], 3)
    assert np.isnan(result.logprobs).tolist() == [True, False]
    assert np.isnan(result.top_logprobs).tolist() == [True, True, False, False]
    assert np.isnan(result.prompt_logprobs).tolist() == [True] * 9 + [True] + [False] * 8


def test_a_failed_step_fails_its_rows_until_somebody_new_takes_them(
    world: World, runner: Runner, tiny_llama: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.step(new={3: (OTHER, GREEDY)}, chunks={3: len(OTHER)}, decodes=[0])
    with monkeypatch.context() as patch:
        patch.setattr(runner.compute, "launch", lambda *_: (_ for _ in ()).throw(RuntimeError("no memory")))
        failed = world.step(new={5: (OTHER, GREEDY)}, chunks={5: 4}, decodes=[3])
    assert failed.error == "RuntimeError: no memory"
    assert len(failed.token_ids) == 0
    after = world.step(chunks={5: 5}, decodes=[3, 0])
    assert after.error is None
    assert after.row_errors == dict.fromkeys((5, 3), "step 3 failed: RuntimeError: no memory")
    assert after.token_ids.tolist()[:2] == [0, 0]
    neighbour_goes_on(world, tiny_llama)
    world.forget(3)
    own_fault = world.step(new={3: ([VOCAB_SIZE], GREEDY)}, chunks={3: 1})
    assert_only_fails(own_fault, 3, "outside the vocabulary")
    world.forget(3)
    assert world.generate({3: OTHER}, 5) == {3: tiny_llama.greedy(OTHER, 5)}


def test_logits_that_are_not_finite_fail_their_row_alone(
    world: World, runner: Runner, tiny_llama: TinyModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poison(logits: np.ndarray) -> None:
        logits[0, 3] = np.nan

    with monkeypatch.context() as patch:
        on_logits(runner, patch, poison)
        result = world.step(new={3: (OTHER, GREEDY)}, chunks={3: len(OTHER)}, decodes=[0])
    assert_only_fails(result, 3, "not finite")
    assert_only_fails(world.step(decodes=[3, 0]), 3, "not finite")
    neighbour_goes_on(world, tiny_llama)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"chunks": {77: 1}}, "names row 77; Warmup agreed 16 rows"),
        ({"chunks": {5: 1}}, "a chunk of row 5, which no request holds"),
        ({"decodes": [0, 0]}, "names a row twice"),
        ({"chunks": {0: 0}}, "a chunk of no tokens"),
    ],
    ids=["row", "stranger", "twice", "empty chunk"],
)
def test_a_step_that_makes_no_sense_fails_whole_and_the_process_goes_on(
    rows: dict, message: str, world: World, tiny_llama: TinyModel
) -> None:
    for row in (77, 5):
        world.rows[row] = world.rows[0]
    assert message in (world.step(**rows).error or "")
    assert world.generate({9: OTHER}, 3) == {9: tiny_llama.greedy(OTHER, 3)}


@pytest.mark.parametrize("chunk", [300, 16, 1], ids=lambda size: f"chunks of {size}")
def test_prompt_logprobs_are_transformers_at_every_position(chunk: int, runner: Runner, tiny_llama: TinyModel) -> None:
    """150 positions: more than one slice of the head."""
    tokens = random_tokens(150, seed=13)
    world = World(runner)
    asked = SamplingParameters(prompt_logprobs=True)
    world.generate({2: tokens, 4: OTHER}, 1, chunk=chunk, parameters={2: asked})
    told = np.concatenate([result.prompt_logprobs for result in world.rows[2].results])
    raw = tiny_llama.logits(tokens).log_softmax(-1)
    expected = raw[:-1].gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
    assert np.isnan(told[0])
    np.testing.assert_allclose(told[1:], expected.numpy(), atol=1e-4)


def test_rows_that_ask_for_nothing_get_nothing(world: World) -> None:
    result = world.step(decodes=[0])
    assert (len(result.logprobs), len(result.top_ids), len(result.prompt_logprobs)) == (0, 0, 0)


def test_the_head_runs_only_for_rows_that_sample(world: World, runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    on_logits(runner, monkeypatch, lambda logits: rows.append(len(logits)))
    world.step(new={3: (OTHER, GREEDY), 4: (OTHER, GREEDY)}, chunks={3: 9, 4: 5}, decodes=[0])
    assert rows == [2]
    world.step(chunks={4: 1})
    assert rows == [2]


def test_a_row_taken_before_its_filter_belongs_to_the_newcomer(world: World, tiny_llama: TinyModel) -> None:
    world.step(new={3: (OTHER, SamplingParameters(temperature=1.0))}, chunks={3: 9})
    world.forget(3)
    assert world.generate({3: PROMPT}, 4) == {3: tiny_llama.greedy(PROMPT, 4)}


@pytest.mark.parametrize("flags", [["--cuda-graphs", "1,2"], ["--cuda-memory-fraction", "0.5"], []])
def test_flags_of_gpus_have_no_effect_on_a_cpu_and_it_says_so(
    flags: list[str], tiny_llama: TinyModel, caplog: pytest.LogCaptureFixture
) -> None:
    load(tiny_llama.directory, *flags)
    told = [record.getMessage() for record in caplog.records if "has no effect" in record.getMessage()]
    assert told == [f"{flag} has no effect: this shard computes on a CPU" for flag in flags[:1]]
