"""Every architecture gives transformers' logits and greedy tokens, however its prompt is cut and placed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from shard_world import GREEDY, World, forward_logits, load, random_tokens
from tiny_models import TinyModel, save

from headrace_server.compute.on_torch import TorchCompute

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-multi-head": ("Llama", {"num_key_value_heads": 4}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-head-dim": ("Llama", {"head_dim": 24}),
    "smollm2-tied": ("Llama", {"tie_word_embeddings": True, "num_attention_heads": 3, "num_key_value_heads": 1,
                               "hidden_size": 48, "rope_theta": 100000.0}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral-window": ("Mistral", {"sliding_window": 13}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 11, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3-biases": ("Qwen3", {"head_dim": 16, "attention_bias": True, "tie_word_embeddings": True}),
    "smollm3": ("SmolLM3", {"num_hidden_layers": 4, "rope_theta": 50000.0}),
    "smollm3-listed": ("SmolLM3", {"no_rope_layers": [0, 1, 1], "tie_word_embeddings": False}),
}  # fmt: skip
PROMPTS = {row: random_tokens(length, seed=row) for row, length in ((0, 40), (3, 1), (5, 17), (6, 64))}


@pytest.fixture(scope="module", params=ARCHITECTURES, ids=str)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    architecture, changes = ARCHITECTURES[request.param]
    return save(architecture, tmp_path_factory.mktemp(request.param), **changes)


@pytest.mark.parametrize("chunk", [64, 16, 7, 1], ids=lambda size: f"chunks of {size}")
def test_logits_equal_transformers_at_every_position(model: TinyModel, chunk: int) -> None:
    tokens = random_tokens(64, seed=1)
    ours = forward_logits(World(load(model.directory)), 2, tokens, chunk)
    torch.testing.assert_close(ours, model.logits(tokens), atol=1e-4, rtol=1e-4)


def test_greedy_answers_equal_transformers_in_a_mixed_batch(model: TinyModel) -> None:
    answers = World(load(model.directory)).generate(PROMPTS, 24, chunk=16)
    assert answers == {row: model.greedy(prompt, 24) for row, prompt in PROMPTS.items()}


def test_a_request_alone_answers_as_in_a_batch(tiny_llama: TinyModel) -> None:
    runner = load(tiny_llama.directory)
    together = World(runner).generate(PROMPTS, 24, chunk=16)
    for row, prompt in PROMPTS.items():
        assert World(runner, seed=row).generate({row: prompt}, 24) == {row: together[row]}


def test_a_request_that_joins_late_disturbs_nobody(tiny_llama: TinyModel) -> None:
    world = World(load(tiny_llama.directory))
    world.generate({0: PROMPTS[0]}, 5)
    world.generate({0: PROMPTS[0], 5: PROMPTS[5]}, 12, chunk=4)
    assert world.rows[0].answer == tiny_llama.greedy(PROMPTS[0], 12)
    assert world.rows[5].answer == tiny_llama.greedy(PROMPTS[5], 12)


def test_a_preempted_request_goes_on_where_it_was(tiny_llama: TinyModel) -> None:
    """Its answer so far comes back as part of the tokens, and all KV is computed again."""
    expected = tiny_llama.greedy(PROMPTS[0], 20)
    world = World(load(tiny_llama.directory))
    world.generate({0: PROMPTS[0]}, 8)
    world.forget(0)
    so_far = PROMPTS[0] + expected[:8]
    world.step(new={4: (so_far, GREEDY)}, generated={4: 8}, chunks={4: len(so_far)})
    while len(world.rows[4].answer) < 20:
        world.step(decodes=[4])
    assert world.rows[4].answer == expected


def test_bfloat16_is_as_near_to_float32_as_transformers_own(tmp_path: Path) -> None:
    model = save("Llama", tmp_path, num_hidden_layers=6, initializer_range=0.1)
    tokens = random_tokens(200, seed=5)
    exact = model.logits(tokens).log_softmax(-1)
    ours = forward_logits(World(load(tmp_path, dtype="bfloat16")), 0, tokens, 50).log_softmax(-1)
    theirs = TinyModel(model.reference.to(torch.bfloat16), tmp_path).logits(tokens).log_softmax(-1)
    assert (ours - exact).abs().mean() <= 1.1 * (theirs - exact).abs().mean()


def test_heads_too_wide_for_the_decoder_are_computed_by_torch(tmp_path: Path) -> None:
    model = save("Llama", tmp_path, head_dim=520, num_attention_heads=2, num_key_value_heads=1)
    runner = load(tmp_path)
    assert isinstance(runner.compute, TorchCompute)
    assert World(runner).generate({0: PROMPTS[5]}, 6) == {0: model.greedy(PROMPTS[5], 6)}
