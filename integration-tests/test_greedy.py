"""float32 answers equal transformers' token for token, however the server had to schedule them."""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.prompts import PROMPTS
from harness.reference import Reference
from harness.server import Server

TOKENS = 64


@pytest.fixture(scope="module")
def expected(reference: Reference) -> dict[str, list[int]]:
    return reference.greedy_many(PROMPTS, TOKENS)


def wrong_answers(server: Server, prompts: list[str], expected: dict[str, list[int]], at_once: int) -> list[str]:
    """Asks for all prompts, `at_once` at a time; a line per answer that is not transformers'."""
    with ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(lambda prompt: server.token_ids(prompt, TOKENS), prompts))
    return [
        f"{prompt!r}: got {answer}, expected {expected[prompt]}"
        for prompt, answer in zip(prompts, answers, strict=True)
        if answer != expected[prompt]
    ]


def forty_eight(seed: int) -> list[str]:
    """48 of the prompts, shuffled; each at least twice."""
    prompts = (PROMPTS * 3)[:48]
    random.Random(seed).shuffle(prompts)
    return prompts


def test_the_prompt_is_tokenized_as_transformers_does(server: Server, reference: Reference) -> None:
    for prompt in PROMPTS:
        status, tokens = server.post("/tokenize", {"inputs": prompt})
        assert status == 200
        assert [token["id"] for token in tokens] == reference.ids(prompt), prompt


def test_alone(server: Server, expected: dict[str, list[int]]) -> None:
    assert wrong_answers(server, PROMPTS, expected, at_once=1) == []


def test_forty_eight_at_once_in_shuffled_order(server: Server, expected: dict[str, list[int]]) -> None:
    assert wrong_answers(server, forty_eight(seed=1), expected, at_once=48) == []
    assert server.metric("headrace_step_rows_bucket", le="+Inf") > 0


def test_prompts_cut_into_16_token_chunks(launch: Callable[..., Server], expected: dict[str, list[int]]) -> None:
    server = launch("--dtype", "float32", "--max-batch-prefill-tokens", "16")
    assert wrong_answers(server, forty_eight(seed=2), expected, at_once=48) == []


def test_a_small_pool_preempts_and_answers_stay_right(
    launch: Callable[..., Server], expected: dict[str, list[int]]
) -> None:
    # 20 blocks of 32 tokens: the longest request needs 6, so some of those that were admitted must give way.
    server = launch("--dtype", "float32", "--max-batch-total-tokens", "640", "--max-total-tokens", "256")
    assert wrong_answers(server, forty_eight(seed=3), expected, at_once=48) == []
    assert server.metric("headrace_preemptions_total") > 0, "the pool was never short: this test shows nothing"


def test_where_there_is_host_memory_a_small_pool_swaps_and_answers_stay_right(
    launch: Callable[..., Server], expected: dict[str, list[int]]
) -> None:
    pool = ("--max-batch-total-tokens", "640", "--max-total-tokens", "256", "--no-prefix-cache")
    server = launch("--dtype", "float32", *pool, "--swap-space", "0.1")
    assert wrong_answers(server, forty_eight(seed=3), expected, at_once=48) == []
    assert server.metric("headrace_swapped_blocks_total") > 0, "nobody was swapped: this test shows nothing"
    assert server.metric("headrace_host_blocks_used") == 0


def test_each_request_preempted_once(launch: Callable[..., Server], expected: dict[str, list[int]]) -> None:
    server = launch("--dtype", "float32", "--debug-preempt-once-seed", "7")
    prompts = forty_eight(seed=4)
    assert wrong_answers(server, prompts, expected, at_once=48) == []
    assert server.metric("headrace_preemptions_total") >= len(prompts)
