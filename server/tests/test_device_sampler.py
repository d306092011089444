"""The GPU's sampler, in Triton's interpreter, beside the one that calls C++: rows come and go, histories grow."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from headrace_server.sampling.on_gpu import DeviceSampler
from headrace_server.sampling.on_host import HostSampler
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.sampling.sampler import Sampler
from headrace_server.sampling.samples import Samples
from headrace_server.sampling.state import SamplingState

ROWS, VOCAB_SIZE = 6, 150
CPU = torch.device("cpu")
KINDS = [
    SamplingParameters(),
    SamplingParameters(logprobs=True, top_n=3),
    SamplingParameters(temperature=0.8, seed=7, top_k=9, logprobs=True),
    SamplingParameters(presence_penalty=2.0, repetition_penalty=1.3),
    SamplingParameters(temperature=1.2, seed=-3, frequency_penalty=1.5, top_p=0.9),
    SamplingParameters(temperature=1.0, bias_ids=np.array([4, 4]), bias_values=np.array([1.5, 2.0], np.float32)),
]


class Bench:
    """A sampler, and rows as a shard holds them."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.state = SamplingState(ROWS, VOCAB_SIZE)
        self.last_token = torch.zeros(ROWS + 1, dtype=torch.int64)
        self.sequences: dict[int, list[int]] = {}

    def admit(self, row: int, parameters: SamplingParameters, prompt: list[int], answer: list[int]) -> None:
        self.state.admit(row, parameters, np.array(prompt + answer), len(answer))
        self.sequences[row] = answer

    def step(self, rows: list[int], seed: int) -> Samples:
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(len(rows), VOCAB_SIZE, generator=generator) * 3
        indices = np.array([len(self.sequences[row]) for row in rows])
        drawn = self.sampler.sample(logits, np.array(rows), indices, self.state, self.last_token)
        samples = drawn.on_host([tensor.numpy() for tensor in drawn.tensors])
        assert self.last_token[rows].tolist() == drawn.ids.tolist() == samples.ids.tolist()
        for row, token in zip(rows, samples.ids.tolist(), strict=True):
            self.sequences[row].append(token)
        return samples


def benches() -> list[Bench]:
    return [Bench(DeviceSampler(ROWS, VOCAB_SIZE, CPU)), Bench(HostSampler())]


def assert_same(got: Samples, expected: Samples) -> None:
    assert got.ids.tolist() == expected.ids.tolist()
    assert got.top_ids.tolist() == expected.top_ids.tolist()
    np.testing.assert_allclose(got.logprobs, expected.logprobs, atol=2e-6)
    np.testing.assert_allclose(got.top_logprobs, expected.top_logprobs, atol=2e-6)


def test_rows_that_come_and_go_get_the_tokens_of_cpp() -> None:
    random, pair = np.random.default_rng(5), benches()
    for step in range(12):
        for row in random.permutation(ROWS)[: 6 if step == 0 else 2].tolist():
            kind, prompt = KINDS[int(random.integers(len(KINDS)))], random.integers(0, VOCAB_SIZE, 5).tolist()
            for bench in pair:
                bench.state.release(row)
                bench.admit(row, kind, prompt, [])
        rows = random.permutation(ROWS)[: int(random.integers(1, ROWS + 1))].tolist()
        got, expected = (bench.step(rows, seed=step) for bench in pair)
        assert_same(got, expected)


def test_a_row_that_was_preempted_goes_on_as_if_it_had_not() -> None:
    """Its history is built again from its tokens, in another row."""
    (bench, _), prompt, parameters = benches(), [3, 9, 9], KINDS[4]
    bench.admit(0, parameters, prompt, [])
    for step in range(6):
        bench.step([0], seed=step)
    first = bench.sequences[0]
    bench.admit(3, parameters, prompt, first[:3])
    for step in range(3, 6):
        bench.step([3], seed=step)
    assert bench.sequences[3] == first


def test_a_new_session_finds_nothing_of_the_old_one() -> None:
    bench, other = benches()
    for each in (bench, other):
        each.admit(0, KINDS[3], [1, 2, 3], [5, 6])
        each.step([0], seed=1)
        each.state = SamplingState(ROWS, VOCAB_SIZE)
        each.admit(0, KINDS[3], [8], [])
    assert_same(bench.step([0], seed=2), other.step([0], seed=2))


def test_a_row_that_there_was_no_memory_for_is_told_with_the_next_step() -> None:
    """Else it would be sampled as whoever had the row before asked."""
    bench, other = benches()
    upload, left = (lambda arrays: [torch.from_numpy(array) for array in arrays]), [True]

    def short(arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        if left:
            left.pop()
            raise MemoryError("no memory")
        return upload(arrays)

    for each in (bench, other):
        each.admit(0, KINDS[3], [1, 2, 3], [])
        each.admit(2, KINDS[0], [1], [])
    bench.sampler = DeviceSampler(ROWS, VOCAB_SIZE, CPU, short)
    with pytest.raises(MemoryError):
        bench.step([2], seed=1)
    for seed in (2, 3, 4):
        assert_same(bench.step([0], seed), other.step([0], seed))


def test_changed_rows_are_told_once() -> None:
    state = SamplingState(ROWS, VOCAB_SIZE)
    state.admit(4, KINDS[0], np.array([1]), 0)
    state.release(2)
    assert state.changed().tolist() == [2, 4]
    state.forget_changed()
    assert state.changed().tolist() == []
