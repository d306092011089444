"""Sampling's kernels, in the interpreter: the same tokens, cuts and noise as C++, bit for bit."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from compiled import weigh
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_rows import ROWS, SHAPES, columns_of, make_logits, with_tokens

from headrace_kernels.errors import ArgumentError
from headrace_kernels.gpu.launch import launch
from headrace_kernels.ops import gumbel_noise, token_logprobs
from headrace_kernels.sample_tokens import Columns, Samples, sample_tokens
from headrace_kernels.sample_tokens.gpu import DeviceColumns, sample_on_gpu
from headrace_kernels.sample_tokens.gpu.mass import mass_of, weight_of

CPU = torch.device("cpu")


def there_of(columns: Columns, vocab_size: int) -> DeviceColumns:
    there = DeviceColumns(columns.max_rows, vocab_size, CPU)
    there.put(np.arange(columns.max_rows), columns)
    return there


def sample(logits, *rows: dict, index: int = 3, **options) -> Samples:
    columns, places = columns_of(*rows), np.arange(len(rows))
    logits = torch.as_tensor(logits)
    there = there_of(columns, logits.shape[1])
    return sample_on_gpu(logits, places, places * 0 + index, columns, there, **options).fetch()


def sample_in_cpp(logits, *rows: dict, index: int = 3, **options) -> Samples:
    columns, places = columns_of(*rows), np.arange(len(rows))
    return sample_tokens(np.array(logits), places, places * 0 + index, columns, **options)


def assert_equal(got: Samples, expected: Samples) -> None:
    np.testing.assert_array_equal(got.possible, expected.possible)
    np.testing.assert_array_equal(got.ids, expected.ids)
    np.testing.assert_array_equal(got.top_ids, expected.top_ids)
    np.testing.assert_allclose(got.logprobs, expected.logprobs, rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose(got.top_logprobs, expected.top_logprobs, rtol=1e-6, atol=2e-6)


@settings(max_examples=8)
@given(
    size=st.sampled_from([1, 2, 17, 63, 64, 65, 200, 1000, 2049, 4099]),
    shapes=st.lists(st.tuples(st.sampled_from(SHAPES), ROWS), min_size=1, max_size=3),
)
def test_tokens_and_cuts_are_those_of_cpp(size, shapes):
    logits = np.stack([make_logits(shape, size, seed) for seed, (shape, _) in enumerate(shapes)])
    rows = [with_tokens({**row, "top_n": min(row["top_n"], 70)}, size) for _, row in shapes]
    expected_kept = np.zeros(logits.shape, np.bool_)
    expected = sample_in_cpp(logits, *rows, kept=expected_kept)
    kept = torch.zeros(logits.shape, dtype=torch.int8)
    assert_equal(sample(logits, *rows, kept=kept), expected)
    for place, row in enumerate(rows):
        # C++ also says what rows without filters keep: all that is finite.
        filters = row["top_k"] < size or row["typical_p"] < 1 or row["top_p"] < 1 or row["min_p"] > 0
        if row["temperature"] > 0 and filters and expected.possible[place]:
            np.testing.assert_array_equal(kept[place].numpy() != 0, expected_kept[place])


FILTERS: list[dict] = [
    *({"typical_p": share} for share in (1e-38, 0.05, 0.5, 0.9, 0.999)),
    *({"top_p": share} for share in (0.05, 0.5, 0.9, 0.999, 1 - 2**-24)),
    *({"top_k": k} for k in (3, 5, 10, 40)),
    {"min_p": 0.05},
    {"top_k": 300, "top_p": 0.9},
    {"top_k": 130, "typical_p": 0.8},
    {"top_k": 1190, "typical_p": 0.95, "top_p": 0.9},
    {"typical_p": 0.3, "top_p": 0.9},
    {"typical_p": 0.2, "min_p": 0.3},
    {"top_p": 0.4, "min_p": 0.001},
]


@pytest.mark.parametrize(("shape", "temperature"), [("masked", 0.3), ("ties", 4)])
def test_filters_leave_what_cpp_leaves(shape, temperature):
    """Cut anywhere from the first token to the last: nothing is lost among the groups that are not looked into."""
    rows = [{"temperature": temperature, **filters} for filters in FILTERS]
    logits = np.stack([make_logits(shape, 1200, seed) for seed in range(len(rows))])
    expected = np.zeros(logits.shape, np.bool_)
    sample_in_cpp(logits, *rows, kept=expected)
    kept = torch.zeros(logits.shape, dtype=torch.int8)
    sample(logits, *rows, kept=kept)
    np.testing.assert_array_equal(kept.numpy() != 0, expected)


def test_typical_sampling_goes_beyond_the_likeliest_that_could_hold_its_share():
    """One token has half of the mass, and 148 about e^-5 of it each. Those nearest to the entropy hold a quarter, so a
    share of 0.3 takes them and the likeliest, which could hold it alone."""
    logits = -np.concatenate(([0], np.linspace(4.9, 5.1, 148))).astype(np.float32)[None]
    row = {"temperature": 1, "typical_p": 0.3}
    expected, kept = np.zeros(logits.shape, np.bool_), torch.zeros(logits.shape, dtype=torch.int8)
    sample_in_cpp(logits, row, kept=expected)
    sample(logits, row, kept=kept)
    np.testing.assert_array_equal(kept.numpy() != 0, expected)


@triton.jit
def _weigh(gaps_ptr, weights_ptr, masses_ptr, SIZE: tl.constexpr):
    places = tl.arange(0, SIZE)
    weights = weight_of(tl.load(gaps_ptr + places))
    tl.store(weights_ptr + places, weights)
    tl.store(masses_ptr + places, mass_of(weights))


def test_masses_are_weights_rounded_to_whole_units():
    gaps = torch.cat((torch.linspace(0, 40, 2046), torch.tensor([88.0, float("inf")])))
    weights, masses = torch.empty(2048), torch.empty(2048, dtype=torch.int64)
    launch(_weigh, (1,), gaps, weights, masses, SIZE=2048)
    torch.testing.assert_close(weights, (-gaps.double()).exp().float(), rtol=3e-7, atol=2e-38)
    np.testing.assert_array_equal(masses.numpy(), np.rint(weights.double().numpy() * 2.0**42))


@pytest.mark.parametrize("size", [1, 5, 4099])
def test_noise_has_the_bits_of_cpp(size):
    seeds, indices = torch.tensor([0, -5, 2**40 + 7]), torch.tensor([0, 3, 2**35 + 1])
    got = gumbel_noise(seeds, indices, size, backend="triton")
    assert torch.equal(got, gumbel_noise(seeds, indices, size, backend="cpu"))


def test_the_likeliest_tokens_go_by_id_among_equals_and_need_not_be_finite():
    """More than there are finite ones, of a vocabulary that ends within a group; and more than are compared at once."""
    logits = np.stack([make_logits(shape, 170, 5) for shape in ("masked", "ties", "equal", "normal")])
    rows = ({"top_n": 150}, {"top_n": 100}, {"top_n": 3}, {"top_n": 170})
    assert_equal(sample(logits, *rows), sample_in_cpp(logits, *rows))


def test_bfloat16_logits_are_sampled_as_their_values():
    logits = torch.from_numpy(np.stack([make_logits("normal", 2100, seed) for seed in range(3)])).bfloat16()
    rows = ({"logprobs": True, "top_n": 4}, {"temperature": 1}, {"temperature": 0.8, "top_k": 30, "top_p": 0.9})
    assert_equal(sample(logits, *rows), sample_in_cpp(logits.float().numpy(), *rows))


def test_a_row_does_not_depend_on_its_batch_or_on_where_its_logits_lie():
    rows = (
        {},
        {"temperature": 1},
        {"temperature": 1, "top_p": 0.9, "top_n": 3},
        {"biases": {5: 9.0}, "logprobs": True},
    )
    logits = torch.from_numpy(np.stack([make_logits("normal", 300, seed) for seed in range(4)]))
    spread = torch.full((4, 331), float("nan"))
    spread[:, 5:305] = logits
    together = sample(spread[:, 5:305], *rows)
    for place, row in enumerate(rows):
        alone = sample(logits[place : place + 1], {"seed": place, **row})
        assert alone.ids[0] == together.ids[place]
        np.testing.assert_array_equal(alone.logprobs[0], together.logprobs[place])
    np.testing.assert_array_equal(sample(logits[2:3], {"seed": 2, **rows[2]}).top_logprobs, together.top_logprobs)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_without_a_choice_leaves_the_others_alone(value):
    logits = np.stack([make_logits("normal", 130, 1)] * 6)
    logits[3:] = -np.inf if value == -np.inf else 0
    logits[3:, 100] = value
    rows = ({}, {"temperature": 1}, {"temperature": 1, "top_p": 0.5})
    rows = (*rows, *({**row, "logprobs": True, "top_n": 2, "history": {4: 0}} for row in rows))
    columns = columns_of(*rows)
    there = there_of(columns, 130)
    places = np.arange(6)
    got = sample_on_gpu(torch.from_numpy(logits), places, places, columns, there).fetch()
    assert got.possible.tolist() == [True] * 3 + [False] * 3
    assert np.isnan(got.logprobs).all()
    assert np.isnan(got.top_logprobs).all()
    assert there.counts.sum() == 3  # nothing was counted
    np.testing.assert_array_equal(
        got.ids[:3], sample(logits[:3], *rows[:3], index=0).ids * [1, 0, 0] + got.ids[:3] * [0, 1, 1]
    )


def test_an_infinity_that_an_edit_makes_refuses_the_row():
    got = sample(np.full((1, 70), 1e38, np.float32), {"repetition_penalty": 1e-10, "history": {4: 1}, "logprobs": True})
    assert got.possible.tolist() == [False]
    assert np.isnan(got.logprobs).all()


def test_counts_and_last_tokens_follow_on_the_device():
    """Three rows, of which two penalise, over steps: as C++'s histories. The host's are not touched."""
    rows = (
        {"presence_penalty": 2.5, "history": {3: 0, 9: 1}},
        {},
        {"frequency_penalty": 0.9, "repetition_penalty": 1.3},
    )
    rows = (*rows[:2], {**rows[2], "temperature": 1.0, "history": {1: 0}})
    columns, expected = columns_of(*rows), columns_of(*rows)
    there, places, last_token = there_of(columns, 40), np.arange(3), torch.zeros(4, dtype=torch.int64)
    for index in range(12):
        logits = np.stack([make_logits("normal", 40, seed) for seed in range(3)])
        device = sample_on_gpu(
            torch.from_numpy(logits), places, places * 0 + index, columns, there, last_token=last_token
        )
        drawn = sample_tokens(logits, places, places * 0 + index, expected)
        assert_equal(device.fetch(), drawn)
        assert last_token.tolist() == [*drawn.ids.tolist(), 0]
    assert columns.history.lengths.tolist() == [2, 0, 1]
    counts = there.counts[there.parameters[0, 10]]
    history = expected.history
    assert counts.nonzero()[:, 0].tolist() == sorted(history.ids[0, : history.lengths[0]].tolist())


def test_repetition_is_of_prompt_and_answer_and_presence_of_the_answer_alone():
    """Token 1 is likelier than token 2 until a penalty reaches it."""
    logits = torch.tensor([[0.0, 1.0, 0.9], [0.0, 1.0, 0.9], [0.0, 1.0, 0.9], [-9.0, -1.0, -1.2]])
    in_prompt, in_answer = {"history": {1: 0}}, {"history": {1: 1}}
    presence, repetition = {"presence_penalty": 5.0}, {"repetition_penalty": 1.5}
    rows = ({**in_prompt, **presence}, {**in_answer, **presence}, *({**in_prompt, **repetition},) * 2)
    assert sample(logits, *rows).ids.tolist() == [1, 2, 2, 2]
    assert sample(logits, *({**row, "frequency_penalty": -5.0} for row in rows)).ids.tolist() == [1, 1, 2, 2]


def test_rows_take_turns_in_the_places_of_counts_and_biases():
    """A place is given back, zeroed for who comes next, and there are as many as rows needed at once."""
    columns = columns_of(*({"history": {7: 3}, "biases": {2: 1.5}},) * 5)
    there = DeviceColumns(5, 20, CPU)
    there.put(np.array([0]), columns)
    there.put(np.array([0, 1]), columns)
    assert there.counts.shape[0] == there.bias_ids.shape[0] == 2
    columns.history.put(3, np.array([8]), np.array([0]))
    there.release(np.array([1]))
    there.put(np.array([3]), columns)
    assert there.counts.shape[0] == 2
    at = there.parameters[3, 10]
    assert there.counts[at].nonzero().tolist() == [[8]]
    assert there.counts[at, 8] == 1
    columns.history.lengths[0] = 0
    there.put(np.array([0, 4, 1]), columns)
    assert there.parameters[0, 10] == -1
    assert sorted(there.parameters[[1, 3, 4], 10].tolist()) == [0, 1, 2]


def test_more_biases_than_there_was_room_for():
    logits = make_logits("normal", 300, 1)[None]
    rows = ({"biases": {token: float(token % 7) for token in range(290, 0, -1)}, "logprobs": True},)
    assert_equal(sample(logits, *rows), sample_in_cpp(logits, *rows))


def test_a_grammars_mask_forbids_in_every_kind_of_row():
    """Bits of three words; a NaN that is forbidden still refuses its row; log-probabilities are of the raw logits."""
    size = 70
    logits = np.stack([make_logits("normal", size, seed) for seed in range(5)])
    logits[4, 0] = np.nan
    random = np.random.default_rng(3)
    allowed = random.random((2, size)) < 0.3
    allowed[:, 0] = False
    bits = np.zeros((2, 96), np.uint32)
    bits[:, :size] = allowed
    words = (bits.reshape(2, 3, 32) << np.arange(32, dtype=np.uint32)).sum(axis=2, dtype=np.uint32).view(np.int32)
    kinds = ({"logprobs": True}, {"temperature": 1}, {"temperature": 1, "top_p": 0.9}, {"history": {4: 2}}, {})
    mask_at = np.array([0, 1, 0, -1, 1])
    got = sample(logits, *kinds, masks=torch.from_numpy(words), mask_at=mask_at)
    forbidden = np.where((mask_at >= 0)[:, None] & ~allowed[mask_at] & ~np.isnan(logits), -np.inf, logits)
    expected = sample_in_cpp(forbidden.astype(np.float32), *kinds)
    np.testing.assert_array_equal(got.possible, [True] * 4 + [False])
    np.testing.assert_array_equal(got.ids, expected.ids)
    raw = token_logprobs(torch.from_numpy(logits[:1]), torch.from_numpy(got.ids[:1]), backend="reference")
    assert got.logprobs[0] == pytest.approx(raw.item(), abs=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("backend", ["triton", None])
def test_log_probabilities_of_given_tokens(dtype, backend):
    logits = torch.from_numpy(np.stack([make_logits(shape, 4099, 2) for shape in SHAPES])).to(dtype)
    logits = torch.cat((logits, logits[:1]))
    logits[-1, 3000] = float("nan")
    tokens = torch.tensor([0, 4098, 2048, 77, 2047, 5, 1])
    got = token_logprobs(logits, tokens, backend=backend)
    expected = token_logprobs(logits.float(), tokens, backend="reference")
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=2e-6, equal_nan=True)


def test_no_rows_give_empty_results():
    nobody, columns = np.empty(0, np.int64), columns_of({})
    got = sample_on_gpu(torch.empty(0, 8), nobody, nobody, columns, there_of(columns, 8)).fetch()
    assert [len(got.ids), len(got.top_ids)] == [0, 0]


def test_arguments_of_the_wrong_kind_are_named():
    columns, row, logits = columns_of({}), np.zeros(1, np.int64), torch.zeros(1, 8)
    there = there_of(columns, 8)
    for name, arguments, options in (
        ("logits", (logits.double(), row, row), {}),
        ("logits: expected 8 columns", (logits[:, :7], row, row), {}),
        ("rows", (logits, row.astype(np.int32), row), {}),
        ("indices", (logits, row, np.zeros(2, np.int64)), {}),
        ("mask_at", (logits, row, row), {"masks": torch.zeros(1, 1, dtype=torch.int32)}),
        ("masks", (logits, row, row), {"masks": torch.zeros(1, 2, dtype=torch.int32), "mask_at": row}),
        ("kept", (logits, row, row), {"kept": torch.zeros(1, 7, dtype=torch.int8)}),
    ):
        with pytest.raises(ArgumentError, match=f"^{name}"):
            sample_on_gpu(*arguments, columns, there, **options)


def test_kernels_fit_the_chips_with_other_logits_and_masks():
    """Those of float32 logits and a vocabulary of 128,256 are among the cases."""
    kernels = weigh("sampling_calls:everything")
    assert {kernel.name for kernel in kernels} == {
        *("edit_kernel", "scan_kernel", "finish_kernel", "weigh_kernel", "choose_kernel"),
        *("_tile_kernel", "_merge_kernel", "logprobs_kernel", "maxima_kernel", "likeliest_kernel"),
    }
    assert all(kernel.fits() for kernel in kernels)


def test_what_must_have_the_bits_of_cpp_is_rounded_as_the_source_says():
    """The interpreter rounds so anyway; a compiler does only if it is told."""
    weigh("sampling_calls:round_as_the_source_says", "sm_90")
