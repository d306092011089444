"""Models whose attention is all Triton, interpreted, say the same as with the C++ kernels."""

import pytest
from shard_world import BLOCK_SIZE, World, load, random_tokens
from tiny_models import save

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


def test_the_embedded_model_gives_the_same_tokens(embedded):
    asked = {"prompts": (5,), "count": 3, "vocab_size": 40_000}
    assert answers(embedded, *TRITON, **asked) == answers(embedded, **asked)
