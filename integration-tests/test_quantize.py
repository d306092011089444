"""`--quantize` on the real model: it answers, and its log-probabilities are near those of float32."""

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.prose import TEXTS
from harness.server import Server

SAMPLE = TEXTS[::6]


def logprobs(server: Server) -> list[float]:
    """Of every token of a few paragraphs but the first of each."""
    answers = [server.generate(text, max_new_tokens=1, decoder_input_details=True) for text in SAMPLE]
    return [token["logprob"] for answer in answers for token in answer["details"]["prefill"][1:]]


@pytest.mark.parametrize(
    ("method", "limit", "made_of"),
    [
        ("int8", 0.1, "1 tensors as their blocks of Q8_0, 210 tensors quantized to 8 bits"),
        # The model's own file has 4-bit blocks: of what 4 bits could lose only rounding rows is left.
        ("int4", 0.1, "210 tensors as their blocks of Q4_1, 1 tensors as their blocks of Q8_0"),
    ],
)
def test_answers_of_smaller_weights_are_near_those_of_float32(
    method: str, limit: float, made_of: str, launch: Callable[..., Server], server: Server
) -> None:
    exact = logprobs(server)
    quantized = launch("--dtype", "bfloat16", "--quantize", method)
    assert f"weights of linear layers: {made_of}" in quantized.log()
    shifts = [abs(ours - theirs) for ours, theirs in zip(logprobs(quantized), exact, strict=True)]
    assert 0 < statistics.mean(shifts) < limit, statistics.mean(shifts)
    answer = quantized.generate("The capital of France is", max_new_tokens=8)
    assert "Paris" in answer["generated_text"], answer


@pytest.mark.parametrize("method", ["int8", "int4"])
def test_an_answer_is_the_same_alone_and_among_others(method: str, launch: Callable[..., Server]) -> None:
    server = launch("--dtype", "bfloat16", "--quantize", method)
    prompts = [text[: 60 + 37 * number] for number, text in enumerate(TEXTS[:6])]
    alone = [server.token_ids(prompt, 16) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        together = list(pool.map(lambda prompt: server.token_ids(prompt, 16), prompts))
    assert together == alone
