"""Models whose attention is Triton's, or all that is no matrix product, interpreted, say the same as with C++."""

import pytest
from shard_world import BLOCK_SIZE, World, load, random_tokens
from tiny_models import save

from headrace_kernels.backends import preferring

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
