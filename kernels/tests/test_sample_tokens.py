"""Sampling in C++: the definition, the noise's bits, the law, and what it refuses."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampling_rows import ROWS, SHAPES, columns_of, make_logits, with_tokens

from headrace_kernels.errors import ArgumentError
from headrace_kernels.ops import gumbel_noise
from headrace_kernels.sample_tokens import Samples, reference, sample_tokens
from headrace_kernels.token_logprobs import token_logprobs

SIZES = (1, 2, 15, 17, 63, 64, 65, 200, 1000, 4099, 49152, 128256)


def sample(logits, *rows: dict, index: int = 3, **options) -> Samples:
    places = np.arange(len(rows))
    return sample_tokens(np.array(logits), places, np.full(len(rows), index), columns_of(*rows), **options)


def kept(logits, parameters: dict, **options) -> np.ndarray:
    """Which tokens one row's filters leave."""
    left = np.zeros((1, len(logits)), np.bool_)
    sample(logits[None], {"temperature": 1, **parameters}, kept=left, **options)
    return left[0]


def is_decided(logits: np.ndarray, row: dict, left: np.ndarray) -> bool:
    """Whether the filters leave the same with every share a little larger or smaller, so rounding can't show."""
    shares = [name for name in ("typical_p", "top_p") if row[name] < 1]
    for change in (1 - 1e-5, 1 + 1e-5):
        for name in shares:
            changed = {**row, name: min(row[name] * change, 1 - 2**-24)}
            if not np.array_equal(kept(logits, changed, backend="reference"), left):
                return False
    return True


# The fixture only says which functions are called.
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(size=st.sampled_from(SIZES), shape=st.sampled_from(SHAPES), shift=st.integers(0, 99), row=ROWS)
def test_it_does_what_the_definition_says(size, shape, shift, row, isa):
    logits, row = make_logits(shape, size, shift), with_tokens(row, size)
    expected_left, left = np.zeros((1, size), np.bool_), np.zeros((1, size), np.bool_)
    expected = sample(logits[None], row, backend="reference", kept=expected_left)
    got = sample(logits[None], row, kept=left)
    np.testing.assert_array_equal(got.possible, expected.possible)
    np.testing.assert_array_equal(got.top_ids, expected.top_ids)
    np.testing.assert_allclose(got.top_logprobs, expected.top_logprobs, rtol=1e-6, atol=2e-6)
    if row["temperature"] == 0 or is_decided(edited(logits, row), row, expected_left[0]):
        np.testing.assert_array_equal(left, expected_left)
        np.testing.assert_array_equal(got.ids, expected.ids)
        np.testing.assert_allclose(got.logprobs, expected.logprobs, rtol=1e-6, atol=2e-6)


def edited(logits: np.ndarray, row: dict) -> np.ndarray:
    changed = logits.copy()
    reference.edit(changed, columns_of(row), 0)
    return changed


@pytest.mark.parametrize("size", [1, 2, 4, 5, 63, 64, 65, 130, 4099])
@pytest.mark.parametrize("temperature", [0.2, 1, 3, 1e30])
def test_the_winner_is_the_one_with_all_noise_computed(size, temperature, isa):
    """Most noise is never computed; what is has the bits of `gumbel_noise`."""
    draws = 300
    logits = np.tile(make_logits("normal", size, 7), (draws, 1))
    columns = columns_of({"temperature": temperature, "seed": -5})
    rows, indices = np.zeros(draws, np.int64), np.arange(draws)
    noise = gumbel_noise(torch.full((draws,), -5), torch.from_numpy(indices), size, backend="cpu").numpy()
    scores = logits / np.float32(temperature)
    winners = (scores + noise).argmax(axis=1)
    np.testing.assert_array_equal(sample_tokens(logits, rows, indices, columns).ids, winners)
    columns.top_p[0] = 0.8
    left = np.zeros(logits.shape, np.bool_)
    got = sample_tokens(logits, rows, indices, columns, kept=left)
    np.testing.assert_array_equal(got.ids, np.where(left, scores + noise, -np.inf).argmax(axis=1))


KINDS = [
    {},
    {"logprobs": True, "top_n": 7},
    {"temperature": 0.7},
    {"temperature": 1, "top_k": 40, "logprobs": True},
    {"temperature": 1, "top_p": 0.9, "top_n": 3},
    {"temperature": 1.3, "typical_p": 0.8},
    {"temperature": 1, "min_p": 0.1},
    {"temperature": 2, "top_k": 5000, "typical_p": 0.95, "top_p": 0.99, "min_p": 0.001},
    {"repetition_penalty": 1.5, "frequency_penalty": 0.4, "history": {3: 0, 9: 2}, "top_n": 1},
    {"temperature": 1, "presence_penalty": 0.4, "biases": {5: 1.5, 8: -2}, "history": {5: 1}},
]


@pytest.mark.parametrize("size", [17, 1000, 49152])
def test_a_rows_bits_do_not_depend_on_its_batch(size, isa, threads):
    """Nor on the number of threads, the order, where its logits lie, or how far it is to the next row."""
    logits = np.stack([make_logits("normal", size, seed) for seed in range(len(KINDS))])
    together = sample(logits, *KINDS)
    ends = np.cumsum([kind.get("top_n", 0) for kind in KINDS])
    spread = np.full((len(KINDS), size + 13), np.nan, np.float32)
    spread[:, 5 : size + 5] = logits
    for count in (1, 3):
        threads(count)
        columns, rows = columns_of(*KINDS), np.arange(len(KINDS))
        again = sample_tokens(spread.copy()[:, 5 : size + 5], rows, np.full(len(KINDS), 3), columns)
        for name in ("ids", "logprobs", "top_ids", "top_logprobs"):
            np.testing.assert_array_equal(getattr(again, name), getattr(together, name))
    for row, kind in enumerate(KINDS):
        alone = sample(logits[row : row + 1], {"seed": row, **kind})
        top = slice(ends[row] - kind.get("top_n", 0), ends[row])
        assert alone.ids[0] == together.ids[row]
        np.testing.assert_array_equal(alone.logprobs[0], together.logprobs[row])
        np.testing.assert_array_equal(alone.top_ids, together.top_ids[top])
        np.testing.assert_array_equal(alone.top_logprobs, together.top_logprobs[top])


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 100, 766, 768, 769, 5000, 20000])
@pytest.mark.parametrize("shape", ["normal", "ties", "masked", "huge"])
def test_top_k_cuts_at_the_kth_largest(k, shape, isa):
    logits = make_logits(shape, 49152, 3)
    last = np.sort(logits)[-k]
    np.testing.assert_array_equal(kept(logits, {"top_k": k}), logits >= last)


def test_a_cut_between_numbers_that_differ_in_one_bit_is_exact(isa):
    """And both zeros are equal."""
    logits = np.array([1, np.nextafter(np.float32(1), np.float32(2)), -0.0, 0.0, 1e-45, -1e-45], np.float32)
    assert kept(logits, {"top_k": 1}).tolist() == [False, True, False, False, False, False]
    assert kept(logits, {"top_k": 2}).tolist() == [True, True, False, False, False, False]
    assert kept(logits, {"top_k": 3}).tolist() == [True, True, False, False, True, False]
    assert kept(logits, {"top_k": 4}).tolist() == [True, True, True, True, True, False]
    assert kept(logits, {"top_k": 5}).tolist() == [True, True, True, True, True, False]


@pytest.mark.parametrize(("share", "left"), [(0.49, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.76, 4), (0.99, 4)], ids=str)
def test_top_p_takes_no_more_than_it_needs(share, left, isa):
    """Probabilities of a half, a quarter and two eighths, which float32 holds exactly; the eighths go together."""
    logits = np.log(np.array([0.125, 0.5, 0.125, 0.25], np.float32))
    assert kept(logits, {"top_p": share}).sum() == left


@pytest.mark.parametrize("shift", range(10))
def test_filters_apply_in_their_order(shift, isa):
    """Where any other order would leave something else."""
    logits = make_logits("normal", 3000, shift)
    row = {"top_k": 400, "typical_p": 0.7, "top_p": 0.8, "min_p": 0.1}
    left = kept(logits, row)
    one_by_one = logits
    for name in ("top_k", "typical_p", "top_p", "min_p"):
        one_by_one = np.where(kept(one_by_one, {name: row[name]}), one_by_one, np.float32(-np.inf))
    np.testing.assert_array_equal(left, one_by_one > -np.inf)
    np.testing.assert_array_equal(left, kept(logits, row, backend="reference"))
    for first, second in (("top_k", "typical_p"), ("typical_p", "top_p"), ("top_k", "top_p")):
        other = logits
        for name in (second, first):
            other = np.where(kept(other, {name: row[name]}), other, np.float32(-np.inf))
        assert not np.array_equal(kept(logits, {first: row[first], second: row[second]}), other > -np.inf)


def test_top_p_keeps_a_tail_of_tokens_that_weigh_a_unit_or_two(isa):
    """Together they are more than may go, each is almost nothing, and rounding to whole units makes them larger."""
    logits = np.full(172463, math.log(1.5025 * 2**-42), np.float32)
    logits[99] = 0
    assert kept(logits, {"top_p": 1 - 2**-24}).all()


def test_the_lowest_id_wins_among_equal_sums(isa):
    """Token 5 is likelier, so it is tried first; token 0 has as much more noise."""
    ties = 0
    for index in range(40):
        noise = gumbel_noise(torch.tensor([0]), torch.tensor([index]), 6, backend="cpu").numpy()[0]
        logits = np.full((1, 6), -np.inf, np.float32)
        logits[0, 0], logits[0, 5] = 0, noise[0] - noise[5]
        if logits[0, 5] > 0 and logits[0, 5] + noise[5] == noise[0]:
            ties += 1
            assert sample(logits, {"temperature": 1, "seed": 0}, index=index).ids.tolist() == [0]
    assert ties > 5


@pytest.mark.parametrize("size", [1, 2, 16, 17, 63, 64, 65, 129])
def test_a_nan_anywhere_refuses_the_row(size, isa):
    for place in range(size):
        logits = np.zeros((2, size), np.float32)
        logits[1, place] = np.nan
        assert sample(logits, {}, {"top_n": 1}).possible.tolist() == [True, False]
        assert sample(logits, {"temperature": 1}, {"temperature": 1, "top_p": 0.5}).possible.tolist() == [True, False]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_without_a_choice_reports_nothing(value, isa):
    logits = np.full((1, 70), value, np.float32)
    got = sample(logits, {"logprobs": True, "top_n": 2, "history": {4: 1}, "presence_penalty": 1.0})
    assert got.possible.tolist() == [False]
    assert np.isnan(got.logprobs).all()
    assert np.isnan(got.top_logprobs).all()


def test_an_infinity_that_an_edit_makes_refuses_the_row(isa):
    logits = np.full((1, 70), 1e38, np.float32)
    got = sample(logits, {"repetition_penalty": 1e-10, "history": {4: 1}, "logprobs": True})
    assert got.possible.tolist() == [False]
    assert np.isnan(got.logprobs).all()


def test_the_lowest_id_wins_among_equals(isa):
    logits = np.zeros((1, 200), np.float32)
    logits[0, [77, 150, 190]] = 1
    assert sample(logits, {}).ids.tolist() == [77]
    assert sample(logits, {"top_n": 5}).top_ids.tolist() == [77, 150, 190, 0, 1]


def test_the_logprob_of_an_edited_token_is_of_its_raw_logit(isa):
    logits = make_logits("normal", 300, 1)
    expected = logits[9] - np.log(np.exp(logits.astype(np.float64)).sum())
    biased = {"logprobs": True, "biases": {9: 100.0}, "history": {9: 1}, "presence_penalty": 1.0}
    got = sample(logits[None], biased)
    assert got.ids.tolist() == [9]
    assert got.logprobs[0] == pytest.approx(expected, abs=2e-6)
    seen = sample(logits[None], {**biased, "biases": {}, "frequency_penalty": -100.0})
    assert seen.ids.tolist() == [9]
    assert seen.logprobs[0] == got.logprobs[0]


@pytest.mark.parametrize("backend", [None, "reference"], ids=["cpp", "reference"])
def test_a_history_counts_each_token_and_grows(backend):
    """600 tokens, three of each: wider than the first width, and beside a row that has no history."""
    columns = columns_of({}, {"history": {250: 0}, "presence_penalty": 0.1})
    columns.history.values[1, 1:] = 7  # of an earlier holder
    for index in range(600):
        logits = np.zeros((2, 300), np.float32)
        logits[:, index % 200] = 1000
        sample_tokens(logits, np.arange(2), np.full(2, index), columns, backend=backend)
    history = columns.history
    assert history.lengths.tolist() == [0, 201]
    assert dict(zip(history.ids[1, :201].tolist(), history.values[1, :201].tolist(), strict=True)) == {
        250: 0,
        **dict.fromkeys(range(200), 3),
    }


@pytest.mark.parametrize("backend", [None, "reference"], ids=["cpp", "reference"])
def test_a_history_that_fills_its_row_gets_a_wider_one(backend):
    columns = columns_of({"presence_penalty": 0.1, "history": dict.fromkeys(range(256), 0)})
    assert columns.history.width == 256
    logits = np.zeros((1, 300), np.float32)
    logits[0, [280, 281]] = [2, 1.95]
    row = np.zeros(1, np.int64)
    drawn = [sample_tokens(logits.copy(), row, row, columns, backend=backend).ids[0] for _ in range(3)]
    assert drawn == [280, 281, 280]
    assert columns.history.ids[0, 256:258].tolist() == [280, 281]
    assert columns.history.values[0, 256:258].tolist() == [2, 1]


def test_counting_of_many_rows_at_once():
    columns = columns_of({"history": {5: 2}}, {"history": {7: 0, 5: 0}}, {"history": {1: 1}})
    columns.history.ids[2, 1], columns.history.values[2, 1] = 5, 50  # of an earlier holder
    columns.history.count(np.array([0, 1, 2]), np.array([5, 5, 5]))
    ids, values = columns.history.of(np.array([2, 0, 1]))
    assert ids.tolist() == [[1, 5], [5, 5], [7, 5]]
    assert values.tolist() == [[1, 1], [3, 0], [0, 1]]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"biases": {3: 1.0, 70: 1.0}}, r"biases\[0\]\[1\]: expected in \[0, 70\), got 70"),
        ({"history": {-1: 1}}, r"history\[0\]\[0\]: expected in \[0, 70\), got -1"),
        ({"top_k": 0}, r"top_k\[0\]: expected at least 1, got 0"),
        ({"top_n": 71}, r"top_n\[0\]: expected in \[0, 71\), got 71"),
    ],
    ids=["bias", "history", "top_k", "top_n"],
)
def test_a_value_that_would_lead_outside_is_named(row, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        sample(np.zeros((1, 70), np.float32), row)


def test_arguments_of_the_wrong_kind_are_named():
    columns, row, logits = columns_of({}), np.zeros(1, np.int64), np.zeros((1, 8), np.float32)
    for name, arguments in {
        "logits": (logits.astype(np.float64), row, row),
        "logits: expected contiguous rows": (np.zeros((1, 16), np.float32)[:, ::2], row, row),
        "rows": (logits, row.astype(np.int32), row),
        r"rows\[0\]: expected in \[0, 1\), got 1": (logits, row + 1, row),
        "indices": (logits, row, np.zeros(2, np.int64)),
    }.items():
        with pytest.raises(ArgumentError, match=f"^{name}"):
            sample_tokens(*arguments, columns)
    with pytest.raises(ArgumentError, match=r"^kept"):
        sample_tokens(logits, row, row, columns, kept=np.zeros((1, 7), np.bool_))


def test_no_rows_give_empty_results():
    nobody = np.empty(0, np.int64)
    got = sample_tokens(np.empty((0, 8), np.float32), nobody, nobody, columns_of({}))
    assert [len(got.ids), len(got.top_ids)] == [0, 0]


def test_it_does_without_torch():
    code = "import sys, headrace_kernels.sample_tokens; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", ["normal", "equal", "peaked", "masked", "huge"])
def test_log_probabilities_of_given_tokens_are_those_of_a_report(size, shape, isa):
    logits = np.stack([make_logits(shape, size, seed) for seed in range(3)])
    tokens = logits.argmax(axis=1)
    got = token_logprobs(logits, tokens)
    np.testing.assert_array_equal(got, sample(logits, *[{"logprobs": True}] * 3).logprobs)
    np.testing.assert_allclose(got, token_logprobs(logits, tokens, backend="reference"), rtol=1e-6, atol=2e-6)
    last = np.full(3, size - 1)
    np.testing.assert_allclose(
        token_logprobs(logits, last), token_logprobs(logits, last, backend="reference"), rtol=1e-6, atol=2e-6
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_token_of_a_row_that_is_not_finite_has_a_log_probability(value, isa):
    logits = np.stack([np.full(70, value, np.float32), make_logits("normal", 70, 1)])
    for backend in (None, "reference"):
        assert np.isnan(token_logprobs(logits, np.array([3, 3]), backend=backend)).tolist() == [True, False]


def test_a_given_token_outside_the_vocabulary_is_named():
    with pytest.raises(ArgumentError, match=r"tokens\[1\]: expected in \[0, 5\), got 5"):
        token_logprobs(np.zeros((2, 5), np.float32), np.array([4, 5]))
