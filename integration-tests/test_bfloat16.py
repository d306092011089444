"""bfloat16 is as close to float32 as transformers' own bfloat16 on the same weights."""

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from harness.prompts import PROMPTS
from harness.reference import Reference
from harness.server import Server


def server_logprobs(server: Server, prompt: str) -> list[float]:
    """Log-probability of each prompt token but the first."""
    answer = server.generate(prompt, max_new_tokens=1, decoder_input_details=True)
    return [token["logprob"] for token in answer["details"]["prefill"][1:]]


def differences(some: list[list[float]], others: list[list[float]]) -> list[float]:
    return [abs(a - b) for x, y in zip(some, others, strict=True) for a, b in zip(x, y, strict=True)]


def share_within(deltas: list[float], limit: float) -> float:
    return sum(delta <= limit for delta in deltas) / len(deltas)


def report(name: str, deltas: list[float]) -> None:
    print(f"{name}: mean |Δ log-prob| {statistics.mean(deltas):.4f}, within 0.05: {share_within(deltas, 0.05):.1%}")


def test_log_probabilities_are_as_close_to_float32_as_those_of_transformers(
    launch: Callable[..., Server], reference: Reference, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [prompt for prompt in PROMPTS if len(reference.ids(prompt)) > 4]
    exact = [reference.prompt_logprobs(text, torch.float32) for text in texts]
    peer = [reference.prompt_logprobs(text, torch.bfloat16) for text in texts]
    server = launch("--dtype", "bfloat16", "--enable-prefill-logprobs")
    alone = [server_logprobs(server, text) for text in texts]
    with ThreadPoolExecutor(len(texts)) as pool:
        batched = list(pool.map(lambda text: server_logprobs(server, text), texts))

    ours, theirs, mates = differences(alone, exact), differences(peer, exact), differences(batched, alone)
    with capsys.disabled():
        print()
        report("headrace bfloat16 against float32", ours)
        report("transformers bfloat16 against float32", theirs)
        report("headrace bfloat16, batched against alone", mates)
    assert statistics.mean(ours) <= 1.1 * statistics.mean(theirs)
    assert share_within(ours, 0.05) >= 0.85
    assert share_within(mates, 0.05) >= 0.85
