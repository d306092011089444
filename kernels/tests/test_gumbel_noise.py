"""Random numbers: known answers, the definition, and the distribution."""

import hashlib

import pytest
import torch

from headrace_kernels.gumbel_noise import reference
from headrace_kernels.ops import gumbel_noise
from headrace_kernels.philox import philox

SEEDS = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63), 0x299F31D0A4093822])
INDICES = torch.tensor([0, 5, 2**32, 2**62, 1, 77])


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([2**32 - 1] * 4, [2**32 - 1] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_gives_the_answers_published_with_random123(counter, key, words):
    result = philox(tuple(torch.tensor(counter)), tuple(torch.tensor(key)))
    assert [int(word) for word in result] == words


@pytest.mark.parametrize("vocab_size", [1, 3, 4, 5, 63, 64, 65, 4096, 4099, 49152])
def test_noise_is_the_definitions_but_for_rounding(vocab_size, isa):
    got = gumbel_noise(SEEDS, INDICES, vocab_size, backend="cpu").double()
    u = reference.uniforms(SEEDS, INDICES, vocab_size).double()
    exact = -(-u.log()).log()
    assert ((got - exact).abs() / exact.abs().clamp(min=1)).max() <= 3e-7


def test_uniforms_can_be_read_back_from_the_noise(isa):
    """23 bits of u are in the noise where it is not near its limit, so equal u are seen as such."""
    noise = gumbel_noise(SEEDS, INDICES, 5000, backend="cpu").double()
    u = reference.uniforms(SEEDS, INDICES, 5000).double()
    middle = (u > 0.01) & (u < 0.5)
    assert ((-(-noise).exp()).exp() - u).abs()[middle].max() < 0.5 * 2.0**-21


def test_noise_has_the_same_bits_with_every_instruction_set(isa):
    """A hash of the bits, so that no machine or compiler may differ either."""
    noise = gumbel_noise(SEEDS, INDICES, 49152, backend="cpu")
    assert hashlib.sha256(noise.numpy().tobytes()).hexdigest()[:16] == "d48db996cad8c442"


def test_a_token_keeps_its_noise_when_the_vocabulary_grows():
    small, large = (gumbel_noise(SEEDS, INDICES, size) for size in (1001, 2002))
    assert torch.equal(small, large[:, :1001])


def test_no_rows_give_an_empty_result():
    empty = torch.empty(0, dtype=torch.int64)
    assert gumbel_noise(empty, empty, 10).shape == (0, 10)


def test_the_extreme_uniforms_give_finite_noise():
    words = torch.tensor([0, 2**32 - 1])
    u = ((words >> 9).float() + 0.5) * 2.0**-23
    assert u.tolist() == [2.0**-24, 1 - 2.0**-24]
    noise = -(-u.double().log()).log()
    assert -2.82 < float(noise[0]) < float(noise[1]) < 16.64


def test_argmax_with_noise_samples_the_distribution():
    """20,000 draws of 8 tokens, seed 5: chi-squared with 7 degrees of freedom is above 24.3 once in 1,000 seeds."""
    probabilities = torch.tensor([0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.04, 0.01])
    draws = 20_000
    noise = gumbel_noise(torch.full((draws,), 5), torch.arange(draws), 8)
    counts = torch.bincount((probabilities.log() + noise).argmax(dim=1), minlength=8)
    expected = probabilities * draws
    assert float(((counts - expected) ** 2 / expected).sum()) < 24.3
