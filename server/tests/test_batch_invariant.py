"""--batch-invariant: a sequence has the same bits alone and in any batch; Triton's kernels interpreted, all of them."""

import logging

import numpy as np
import pytest
from shard_world import BLOCK_SIZE, GREEDY, World, load, on_logits, random_tokens
from tiny_models import save

from headrace_kernels.backends import preferring
from headrace_server.errors import ConfigError

TRITON = ("--attention-backend", "triton", "--device", "cpu")
PROMPTS = {row: random_tokens(length, seed=row) for row, length in enumerate((12, 3, 20))}
# Chunks and decodes mixed, then decodes alone: row -> prompt tokens of a step, and who decodes in it.
TOGETHER = (({0: 9, 1: 3}, ()), ({0: 3, 2: 13}, (1,)), ({2: 7}, (1, 0)), ({}, (0, 1, 2)))


@pytest.fixture(autouse=True)
def rows_alike(monkeypatch):
    """The interpreter's matrix products treat every row alike, as tensor cores do; numpy's own do not."""

    def product(a, b, dtype=None):
        return np.einsum("mk,kn->mn", a.astype(dtype), b.astype(dtype))

    monkeypatch.setattr(np, "matmul", product)


class Logits:
    """What each request's logits were, step by step."""

    def __init__(self, world, patch):
        self.world = world
        self.of = {}
        self._last = np.empty((0, 0))
        on_logits(world.runner, patch, self._look)

    def step(self, new, chunks, decodes):
        """`new` row -> prompt."""
        result = self.world.step(
            new={row: (tokens, GREEDY) for row, tokens in new.items()}, chunks=chunks, decodes=decodes
        )
        assert result.error is None and not result.row_errors
        finished = [row for row in chunks if self.world.rows[row].answer]
        for row, logits in zip([*finished, *decodes], self._last, strict=True):
            self.of.setdefault(row, []).append(logits)

    def _look(self, logits):
        self._last = logits.copy()


def together_and_alone(directory, patch, *flags):
    """Of each prompt: its logits as one of three, and by itself with its prompt in one piece."""
    with preferring("triton"):
        world = World(load(directory, *TRITON, *flags), max_rows=4, max_total_tokens=4 * BLOCK_SIZE)
        seen = Logits(world, patch)
        for chunks, decodes in TOGETHER:
            seen.step({row: PROMPTS[row] for row in chunks if row not in world.rows}, chunks, decodes)
        together = [np.stack(seen.of.pop(row)) for row in PROMPTS]
        alone = []
        for row, prompt in PROMPTS.items():
            world.forget(row)
            seen.step({row: prompt}, {row: len(prompt)}, ())
            for _ in together[row][1:]:
                seen.step({}, {}, (row,))
            alone.append(np.stack(seen.of[row]))
    return together, alone


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return save("Llama", tmp_path_factory.mktemp("llama"), attention_bias=True, num_hidden_layers=2).directory


def test_a_sequence_has_the_same_logits_bit_for_bit_alone_and_among_others(directory, monkeypatch):
    together, alone = together_and_alone(directory, monkeypatch, "--batch-invariant")
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_the_flag_they_differ(directory, monkeypatch):
    together, alone = together_and_alone(directory, monkeypatch)
    assert not all(np.array_equal(one, other) for one, other in zip(together, alone, strict=True))
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3)


def test_on_a_cpu_it_changes_nothing_and_says_so(tiny_llama, caplog):
    with caplog.at_level(logging.INFO, logger="headrace_server"):
        plain, told = load(tiny_llama.directory), load(tiny_llama.directory, "--batch-invariant")
    assert caplog.text.count("--batch-invariant changes nothing on a CPU") == 1
    worlds = [World(runner, max_rows=2, max_total_tokens=4 * BLOCK_SIZE) for runner in (plain, told)]
    assert worlds[0].generate({0: PROMPTS[0]}, 3) == worlds[1].generate({0: PROMPTS[0]}, 3)


def test_what_cannot_keep_it_refuses_it(tiny_llama):
    with pytest.raises(ConfigError, match="--batch-invariant: needs --dtype float32 or bfloat16, not float16"):
        load(tiny_llama.directory, "--batch-invariant", "--device", "cpu", dtype="float16")
    for backend in ("flashinfer", "fa3", "reference"):
        message = (
            f"--attention-backend {backend}: what it computes for a sequence depends on the batch; take triton, or"
        )
        with pytest.raises(ConfigError, match=message):
            load(tiny_llama.directory, "--batch-invariant", "--attention-backend", backend)
