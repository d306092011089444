"""A whole step's sampling: the order of operations, reproducibility, statistics, and reports."""

import math

import numpy as np
import pytest
import torch
from sampling_world import SAMPLERS, Sample
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from headrace_kernels.ops import gumbel_noise
from headrace_server.sampling.on_cpu import IMPOSSIBLE, UNKNOWN, sample_on_cpu
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.sampling.samples import Samples
from headrace_server.sampling.state import SamplingState

VOCAB_SIZE = 500
HISTORY = np.array([3, 9, 9, 40, 7, 7, 7, 120])  # the last four generated


def logits(rows: int, seed: int) -> Tensor:
    return torch.randn(rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.fixture(params=SAMPLERS)
def sample(request: pytest.FixtureRequest) -> Sample:
    """Each of the samplers in turn."""
    return SAMPLERS[request.param]


def state_of(*parameters: SamplingParameters) -> SamplingState:
    state = SamplingState(16, VOCAB_SIZE)
    for row, its in enumerate(parameters):
        assert its.problem(VOCAB_SIZE) is None
        state.admit(row, its, HISTORY, 4)
    return state


def draw(sample: Sample, scores: Tensor, *parameters: SamplingParameters, index: int = 4) -> Samples:
    rows = np.arange(len(parameters))
    return sample(scores.clone(), rows, np.full(len(rows), index), state_of(*parameters))


def test_greedy_takes_the_largest_and_the_lowest_id_among_equals(sample: Sample) -> None:
    scores = torch.zeros(2, VOCAB_SIZE)
    scores[0, [8, 77, 300]] = 5.0
    scores[1, 499] = 0.5
    assert draw(sample, scores, SamplingParameters(), SamplingParameters()).ids.tolist() == [8, 499]


@pytest.mark.parametrize("temperature", [5e-38, 1.2e-38, 1e-6])
def test_a_temperature_of_almost_nothing_is_greedy(sample: Sample, temperature: float) -> None:
    scores = logits(4, seed=2) * 1000
    drawn = draw(
        sample, scores, *[SamplingParameters(temperature=temperature, top_p=0.9, seed=seed) for seed in range(4)]
    )
    assert drawn.ids.tolist() == scores.argmax(dim=-1).tolist()
    assert drawn.possible.all()


def test_the_lowest_temperature_that_samples_computes_with_finite_numbers(sample: Sample) -> None:
    drawn = draw(sample, logits(1, seed=3) * 1e6, SamplingParameters(temperature=1e-5, top_p=0.9, typical_p=0.9))
    assert drawn.possible.all()


@pytest.mark.parametrize("penalty", [1.2e-38, 5e-38, 1e-11, 3e38])
@pytest.mark.parametrize("temperature", [0.0, 1e-5, 0.7, 3e38])
def test_a_repetition_penalty_of_any_size_computes_with_finite_numbers(
    sample: Sample, penalty: float, temperature: float
) -> None:
    extreme = SamplingParameters(temperature=temperature, repetition_penalty=penalty)
    nearest = SamplingParameters(temperature=temperature, repetition_penalty=min(max(penalty, 1e-10), 1e10))
    for sign in (1, -1):
        scores = (logits(1, seed=4).abs() + 1) * 100 * sign
        drawn = draw(sample, scores, extreme)
        assert drawn.possible.all()
        assert drawn.ids.tolist() == draw(sample, scores, nearest).ids.tolist()


def test_greedy_ignores_the_filters_but_not_bias_and_penalties(sample: Sample) -> None:
    scores = logits(1, seed=1)
    best, second = scores[0].topk(2).indices.tolist()
    filtered = SamplingParameters(top_k=3, top_p=0.1, typical_p=0.1, min_p=0.9, seed=5)
    assert draw(sample, scores, filtered).ids.tolist() == [best]
    biased = SamplingParameters(bias_ids=np.array([best]), bias_values=np.array([-100.0], np.float32))
    assert draw(sample, scores, biased).ids.tolist() == [second]


def test_the_order_of_operations_is_the_documented_one(sample: Sample) -> None:
    parameters = SamplingParameters(
        temperature=0.8, top_k=60, typical_p=0.95, top_p=0.9, min_p=0.01, repetition_penalty=1.4, seed=77,
        bias_ids=np.array([9, 11]), bias_values=np.array([4.0, 6.0], np.float32), frequency_penalty=0.3,
        presence_penalty=0.6,
    )  # fmt: skip
    expected = logits(1, seed=2)
    expected[0, 9] += 4.0
    expected[0, 11] += 6.0
    expected = RepetitionPenaltyLogitsProcessor(1.4)(torch.from_numpy(HISTORY)[None], expected)
    expected[0, 7] -= 3 * 0.3 + 0.6
    expected[0, 120] -= 0.3 + 0.6
    warpers = (
        TemperatureLogitsWarper(0.8),
        TopKLogitsWarper(60),
        TypicalLogitsWarper(0.95),
        TopPLogitsWarper(0.9),
        MinPLogitsWarper(0.01),
    )
    expected = LogitsProcessorList(warpers)(torch.from_numpy(HISTORY)[None], expected)
    for index in range(200):
        noise = gumbel_noise(torch.tensor([77]), torch.tensor([index]), VOCAB_SIZE)
        drawn = draw(sample, logits(1, seed=2), parameters, index=index)
        assert drawn.ids.tolist() == (expected + noise).argmax(-1).tolist(), index


def test_a_token_is_a_function_of_seed_and_index(sample: Sample) -> None:
    scores = torch.zeros(1, VOCAB_SIZE)
    drawn = {
        (seed, index): draw(sample, scores, SamplingParameters(temperature=1.0, seed=seed), index=index).ids[0]
        for seed in (0, 1, -1, 2**40)
        for index in range(50)
    }
    again = {
        (seed, index): draw(sample, scores, SamplingParameters(temperature=1.0, seed=seed), index=index).ids[0]
        for seed, index in drawn
    }
    assert drawn == again
    assert len({drawn[0, index] for index in range(50)}) > 40
    assert [drawn[0, index] for index in range(50)] != [drawn[1, index] for index in range(50)]


def test_a_rows_sample_does_not_depend_on_its_neighbours(sample: Sample) -> None:
    """Twelve rows with every kind of parameter, together and alone."""
    kinds = [
        SamplingParameters(),
        SamplingParameters(logprobs=True, top_n=5),
        SamplingParameters(temperature=0.7, seed=3, top_k=20),
        SamplingParameters(temperature=1.3, seed=4, top_p=0.6, logprobs=True),
        SamplingParameters(temperature=1.0, seed=5, typical_p=0.5, top_n=2),
        SamplingParameters(temperature=1.0, seed=6, min_p=0.2),
        SamplingParameters(repetition_penalty=1.5, frequency_penalty=0.4),
        SamplingParameters(temperature=1.0, seed=7, presence_penalty=1.0),
        SamplingParameters(bias_ids=np.array([4]), bias_values=np.array([50.0], np.float32)),
        SamplingParameters(temperature=1.0, seed=8, top_k=3, top_p=0.9, typical_p=0.9, min_p=0.1),
        SamplingParameters(temperature=2.0, seed=9),
        SamplingParameters(top_n=5),
    ]
    scores = logits(len(kinds), seed=3)
    together = draw(sample, scores, *kinds)
    top_starts = np.cumsum([0, *(kind.top_n for kind in kinds)])
    for row, kind in enumerate(kinds):
        alone = draw(sample, scores[row : row + 1], kind)
        assert alone.ids[0] == together.ids[row]
        np.testing.assert_array_equal(alone.logprobs[0], together.logprobs[row])
        top = slice(top_starts[row], top_starts[row + 1])
        np.testing.assert_array_equal(alone.top_ids, together.top_ids[top])
        np.testing.assert_array_equal(alone.top_logprobs, together.top_logprobs[top])


def test_samples_follow_the_distribution(sample: Sample) -> None:
    """20,000 draws of 5 tokens: χ² with 4 degrees of freedom stays below 23.5 but for one seed in 10,000."""
    probabilities = torch.tensor([0.5, 0.25, 0.15, 0.07, 0.03])
    scores = torch.full((1, VOCAB_SIZE), -math.inf)
    scores[0, 10:15] = probabilities.log()
    rows, draws = np.zeros(1000, np.int64), 20
    state = state_of(SamplingParameters(temperature=1.0, seed=42))
    counts = torch.zeros(5)
    for start in range(draws):
        drawn = sample(scores.repeat(1000, 1), rows, np.arange(1000) + 1000 * start, state)
        counts += torch.from_numpy(np.bincount(drawn.ids - 10, minlength=5))
    expected = probabilities * 1000 * draws
    assert ((counts - expected) ** 2 / expected).sum() < 23.5


def test_temperature_sharpens_before_the_noise(sample: Sample) -> None:
    scores = torch.zeros(1, VOCAB_SIZE)
    scores[0, 3] = 1.0
    cold = [
        draw(sample, scores, SamplingParameters(temperature=0.05, seed=1), index=index).ids[0] for index in range(100)
    ]
    assert cold.count(3) > 95


def test_logprobs_are_of_the_raw_logits(sample: Sample) -> None:
    scores = logits(1, seed=4)
    parameters = SamplingParameters(
        temperature=0.5, seed=1, top_k=2, logprobs=True, top_n=3, repetition_penalty=2.0,
        bias_ids=np.array([33]), bias_values=np.array([1000.0], np.float32),
    )  # fmt: skip
    drawn = draw(sample, scores, parameters)
    raw = scores.log_softmax(-1)[0]
    assert drawn.ids.tolist() == [33]
    assert drawn.logprobs[0] == pytest.approx(raw[33].item(), abs=1e-6)
    assert drawn.top_ids.tolist() == raw.topk(3).indices.tolist()
    np.testing.assert_allclose(drawn.top_logprobs, raw.topk(3).values.numpy(), atol=1e-6)


def test_penalties_follow_the_answer_as_it_grows(sample: Sample) -> None:
    """Step by step, as from a row that starts with the same tokens: what a preempted request relies on."""
    parameters = SamplingParameters(repetition_penalty=1.2, frequency_penalty=0.5, presence_penalty=0.7)
    state, tokens = state_of(parameters), HISTORY.tolist()
    for step in range(400):  # outgrows the first capacity
        scores = logits(1, seed=step % 3)
        grown = sample(scores.clone(), np.array([0]), np.array([step]), state).ids[0]
        fresh = SamplingState(1, VOCAB_SIZE)
        fresh.admit(0, parameters, np.array(tokens), len(tokens) - 4)
        rebuilt = sample(scores.clone(), np.array([0]), np.array([step]), fresh).ids[0]
        assert grown == rebuilt, step
        tokens.append(int(grown))


def test_a_reused_row_forgets_its_last_holder(sample: Sample) -> None:
    state = state_of(SamplingParameters(bias_ids=np.array([4]), bias_values=np.array([50.0], np.float32), top_n=2))
    state.admit(0, SamplingParameters(), HISTORY, 0)
    scores = logits(1, seed=5)
    drawn = sample(scores.clone(), np.array([0]), np.array([0]), state)
    assert drawn.ids[0] == int(scores.argmax())
    assert len(drawn.top_ids) == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "random"])
@pytest.mark.parametrize("value", [math.nan, -math.inf], ids=["nan", "nothing"])
def test_logits_without_a_choice_are_reported(sample: Sample, temperature: float, value: float) -> None:
    parameters = SamplingParameters(temperature=temperature)
    scores = logits(2, seed=6)
    scores[1, :] = value
    assert draw(sample, scores, parameters, parameters).possible.tolist() == [True, False]


def test_one_nan_is_enough_to_refuse_a_row(sample: Sample) -> None:
    scores = logits(1, seed=7)
    scores[0, 100] = math.nan
    for parameters in (SamplingParameters(), SamplingParameters(temperature=1.0, top_p=0.5, top_k=5)):
        assert draw(sample, scores, parameters).possible.tolist() == [False]


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        (SamplingParameters(temperature=-1.0), "temperature"),
        (SamplingParameters(temperature=math.nan), "temperature"),
        (SamplingParameters(top_p=0.0), "top_p"),
        (SamplingParameters(typical_p=1.5), "typical_p"),
        (SamplingParameters(min_p=-0.1), "min_p"),
        (SamplingParameters(repetition_penalty=0.0), "repetition_penalty"),
        (SamplingParameters(frequency_penalty=math.inf), "frequency_penalty"),
        (SamplingParameters(presence_penalty=math.nan), "presence_penalty"),
        (SamplingParameters(top_n=VOCAB_SIZE + 1), "top_n"),
        (SamplingParameters(bias_ids=np.array([1])), "logit bias"),
        (SamplingParameters(bias_ids=np.array([VOCAB_SIZE]), bias_values=np.ones(1, np.float32)), "logit bias"),
        (SamplingParameters(bias_ids=np.array([1]), bias_values=np.array([math.nan], np.float32)), "logit bias"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_parameter_out_of_range_is_named(parameters: SamplingParameters, name: str) -> None:
    problem = parameters.problem(VOCAB_SIZE)
    assert problem is not None
    assert name in problem


PLAIN = SamplingParameters(top_p=0.5, seed=3)
NOT_PLAIN = [
    SamplingParameters(temperature=0.5),
    SamplingParameters(logprobs=True),
    SamplingParameters(top_n=1),
    SamplingParameters(presence_penalty=0.1),
    SamplingParameters(bias_ids=np.array([1]), bias_values=np.ones(1, np.float32)),
]


def test_a_row_is_plain_if_only_its_arg_max_is_wanted() -> None:
    state = state_of(PLAIN, *NOT_PLAIN)
    assert state.plain[:6].tolist() == [True, False, False, False, False, False]
    state.admit(1, PLAIN, HISTORY, 0)
    assert state.plain[1]


def test_rows_whose_arg_max_is_known_need_no_logits() -> None:
    scores, rows = logits(3, seed=8), np.arange(5)
    state = state_of(NOT_PLAIN[0], PLAIN, NOT_PLAIN[1], PLAIN, NOT_PLAIN[2])
    known = np.array([UNKNOWN, 77, UNKNOWN, IMPOSSIBLE, UNKNOWN])
    drawn = sample_on_cpu(scores.numpy().copy(), rows, np.full(5, 4), state, known=known)
    rest = draw(SAMPLERS["cpp"], scores, NOT_PLAIN[0], NOT_PLAIN[1], NOT_PLAIN[2])
    assert drawn.ids[[0, 1, 2, 4]].tolist() == [rest.ids[0], 77, rest.ids[1], rest.ids[2]]
    assert drawn.possible.tolist() == [True, True, True, False, True]
    assert np.isnan(drawn.logprobs).tolist() == [True, True, False, True, False]
    assert drawn.logprobs[[2, 4]].tolist() == rest.logprobs[1:].tolist()
    assert drawn.top_ids.tolist() == rest.top_ids.tolist()
