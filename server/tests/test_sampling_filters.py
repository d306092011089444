"""Each filter and penalty alone, beside transformers' processor of the same name."""

import pytest
import torch
from sampling_world import STAGES, KernelStages
from torch import Tensor
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

ROWS, VOCAB_SIZE = 5, 3001
NO_IDS = torch.zeros(ROWS, 1, dtype=torch.int64)
MASSES = (0.05, 0.3, 0.9, 0.999)


@pytest.fixture(params=STAGES)
def stages(request: pytest.FixtureRequest) -> KernelStages:
    """The filters and penalties of each sampler in turn."""
    return STAGES[request.param]


def logits(seed: int, spread: float = 4.0) -> Tensor:
    return torch.randn(ROWS, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)) * spread


def column(*values: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor(values, dtype=dtype)[:, None]


@pytest.mark.parametrize("k", [1, 2, 50, 3000, 3001])
def test_top_k_keeps_what_transformers_keeps(stages: KernelStages, k: int) -> None:
    scores = logits(1)
    expected = TopKLogitsWarper(k)(NO_IDS, scores)
    stages.keep_top_k(scores, torch.full((ROWS, 1), k))
    assert torch.equal(scores, expected)


def test_top_k_is_of_each_row(stages: KernelStages) -> None:
    scores = logits(2)
    stages.keep_top_k(scores, column(1, 7, 3, 3001, 2, dtype=torch.int64))
    assert scores.isfinite().sum(1).tolist() == [1, 7, 3, 3001, 2]


@pytest.mark.parametrize("mass", MASSES)
def test_top_p_keeps_what_transformers_keeps(stages: KernelStages, mass: float) -> None:
    scores = logits(3)
    expected = TopPLogitsWarper(mass)(NO_IDS, scores)
    stages.keep_top_p(scores, torch.full((ROWS, 1), mass))
    assert torch.equal(scores, expected)


def at_the_cut(scores: Tensor, mass: float) -> Tensor:
    """[rows, vocab]: tokens before which typical sampling has collected `mass`, but for the rounding of float32.

    Whether such a token is kept depends on the order in which a machine adds up three thousand probabilities.
    """
    log_probabilities = scores.double().log_softmax(-1)
    probabilities = log_probabilities.exp()
    entropy = -(probabilities * log_probabilities).sum(-1, keepdim=True)
    order = (-log_probabilities - entropy).abs().argsort(-1)
    sorted_probabilities = probabilities.gather(1, order)
    before = sorted_probabilities.cumsum(-1) - sorted_probabilities
    return torch.zeros_like(scores, dtype=torch.bool).scatter(1, order, (before - mass).abs() < 2e-6)


@pytest.mark.parametrize("mass", MASSES)
def test_typical_keeps_what_transformers_keeps(stages: KernelStages, mass: float) -> None:
    scores = logits(4)
    undecided = at_the_cut(scores, mass)
    assert undecided.sum() <= ROWS
    expected = TypicalLogitsWarper(mass)(NO_IDS, scores)
    stages.keep_typical(scores, torch.full((ROWS, 1), mass))
    assert torch.equal(scores[~undecided], expected[~undecided])


@pytest.mark.parametrize("share", [0.001, 0.05, 0.5, 1.0])
def test_min_p_keeps_what_transformers_keeps(stages: KernelStages, share: float) -> None:
    scores = logits(5)
    expected = MinPLogitsWarper(share)(NO_IDS, scores)
    stages.keep_min_p(scores, torch.full((ROWS, 1), share))
    assert torch.equal(scores, expected)


@pytest.mark.parametrize("name", ["keep_top_p", "keep_typical"])
def test_filters_work_on_what_an_earlier_filter_left(stages: KernelStages, name: str) -> None:
    warper = TopPLogitsWarper(0.7) if name == "keep_top_p" else TypicalLogitsWarper(0.7)
    scores = logits(6)
    stages.keep_top_k(scores, torch.full((ROWS, 1), 40))
    expected = warper(NO_IDS, scores)
    getattr(stages, name)(scores, torch.full((ROWS, 1), 0.7))
    assert torch.equal(scores, expected)


@pytest.mark.parametrize(
    ("name", "setting"),
    [("keep_top_k", column(1, dtype=torch.int64)), ("keep_top_p", column(0.1)), ("keep_min_p", column(1.0))],
    ids=["top-k", "top-p", "min-p"],
)
def test_equal_tokens_stay_or_go_together(stages: KernelStages, name: str, setting: Tensor) -> None:
    scores = torch.tensor([[0.0, 5.0, 5.0, 5.0, 1.0]])
    getattr(stages, name)(scores, setting)
    assert scores.isfinite().tolist() == [[False, True, True, True, False]]


def test_every_filter_keeps_a_token_of_a_lone_peak(stages: KernelStages) -> None:
    for keep, setting in ((stages.keep_top_p, 1e-6), (stages.keep_typical, 1e-6), (stages.keep_min_p, 1.0)):
        scores = torch.full((1, 100), -50.0)
        scores[0, 7] = 50.0
        keep(scores, column(setting))
        assert scores[0, 7].isfinite(), keep.__name__


def test_a_filters_result_does_not_depend_on_the_other_rows(stages: KernelStages) -> None:
    for keep, setting in ((stages.keep_top_p, 0.8), (stages.keep_typical, 0.8), (stages.keep_min_p, 0.02)):
        together = logits(7, spread=0.5)
        alone = together[2:3].clone()
        keep(together, torch.full((ROWS, 1), setting))
        keep(alone, column(setting))
        assert torch.equal(alone[0], together[2]), keep.__name__


def test_repetition_penalty_equals_transformers(stages: KernelStages) -> None:
    scores, tokens = logits(8), torch.randint(0, VOCAB_SIZE, (ROWS, 300), generator=torch.Generator().manual_seed(8))
    for penalty in (1.3, 0.7):
        expected = RepetitionPenaltyLogitsProcessor(penalty)(tokens, scores)
        edited = scores.clone()
        stages.penalize_repetition(edited, tokens, torch.full((ROWS, 1), penalty))
        assert torch.equal(edited, expected)


def test_bias_equals_transformers(stages: KernelStages) -> None:
    scores = logits(9)
    expected = SequenceBiasLogitsProcessor([[[5], 2.5], [[17], -100.0]])(NO_IDS, scores)
    places = torch.arange(ROWS).numpy()
    stages.add_biases(scores, places, torch.tensor([[17, 5]] * ROWS), torch.tensor([[-100.0, 2.5]] * ROWS))
    assert torch.equal(scores, expected)


def test_bias_of_one_row_leaves_the_others_alone(stages: KernelStages) -> None:
    scores = torch.zeros(3, 10)
    stages.add_biases(scores, torch.tensor([1]).numpy(), torch.tensor([[4, 4]]), torch.tensor([[1.0, 2.0]]))
    assert scores.nonzero().tolist() == [[1, 4]]
    assert scores[1, 4] == 3.0


def test_frequency_counts_and_presence_does_not(stages: KernelStages) -> None:
    tokens, counts = torch.tensor([[3, 5, 6]]), torch.tensor([[0, 3, 1]])
    scores = torch.zeros(1, 8)
    stages.penalize_occurrence(scores, tokens, counts, column(0.5), column(10.0))
    assert scores.tolist() == [[0, 0, 0, 0, 0, -11.5, -10.5, 0]]
