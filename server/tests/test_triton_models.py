"""Models whose attention is Triton's, or all that is no matrix product, interpreted, say the same as with C++."""

import pytest
from shard_world import BLOCK_SIZE, World, load, random_tokens
from tiny_models import save

from headrace_kernels.backends import preferring
from headrace_server.sampling.parameters import SamplingParameters

TRITON = ("--attention-backend", "triton", "--device", "cpu")


def answers(directory, *flags, prompts, count, chunk=1000, vocab_size=97):
    """Greedy tokens of prompts of so many tokens each, run together."""
    world = World(load(directory, *flags), max_rows=2, max_total_tokens=4 * BLOCK_SIZE)
    rows = {row: random_tokens(length, seed=row, vocab_size=vocab_size) for row, length in enumerate(prompts)}
    return world.generate(rows, count, chunk=chunk)


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("Llama", {"hidden_size": 60, "num_attention_heads": 3, "num_key_value_heads": 1}),
        ("Mistral", {"sliding_window": 7}),
        ("Qwen3", {"head_dim": 32}),
        ("SmolLM3", {"no_rope_layer_interval": 3}),
    ],
    ids=["odd heads", "window", "norms of heads", "a layer without rotation"],
)
def test_a_tiny_model_gives_the_same_tokens(architecture, changes, tmp_path):
    directory = save(architecture, tmp_path, **changes).directory
    asked = {"prompts": (21, 3), "count": 4, "chunk": 9}
    assert answers(directory, *TRITON, **asked) == answers(directory, **asked)


def test_a_tiny_model_gives_the_same_tokens_when_nothing_is_left_to_cpp(tmp_path):
    directory = save("Qwen3", tmp_path, head_dim=32).directory
    asked = {"prompts": (21, 3), "count": 4, "chunk": 9}
    with preferring("triton"):
        interpreted = answers(directory, *TRITON, **asked)
    assert interpreted == answers(directory, **asked)


def test_the_embedded_model_gives_the_same_tokens(embedded):
    """Its norms, gates, embeddings and sampling are Triton's too."""
    asked = {"prompts": (5,), "count": 3, "vocab_size": 40_000}
    with preferring("triton"):
        interpreted = answers(embedded, *TRITON, **asked)
    assert interpreted == answers(embedded, **asked)


@pytest.mark.parametrize("cache", ["fp8_e4m3fn", "fp8_e5m2"])
def test_an_8_bit_cache_takes_half_the_bytes_of_16_and_says_nearly_the_same(cache, tmp_path):
    directory = save("Llama", tmp_path).directory
    runner = load(directory, *TRITON, "--kv-cache-dtype", cache)
    assert runner.compute.kv_bytes_per_token == load(directory, *TRITON).compute.kv_bytes_per_token // 4
    world = World(runner, max_rows=2, max_total_tokens=4 * BLOCK_SIZE)
    prompt = random_tokens(21, seed=3)
    told = world.step(new={0: (prompt, SamplingParameters(logprobs=True))}, chunks={0: 21}).logprobs
    exact = World(load(directory, *TRITON), max_rows=2, max_total_tokens=4 * BLOCK_SIZE)
    expected = exact.step(new={0: (prompt, SamplingParameters(logprobs=True))}, chunks={0: 21}).logprobs
    assert 0 < abs(told[0] - expected[0]) < 0.5, "it is rounded, and not much"
    assert world.generate({1: prompt[:9]}, 3)[1], "it goes on to decode"
