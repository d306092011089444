"""A beginning that several requests share is computed once, and no answer changes for it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.prompts import PROMPTS
from harness.server import Server
from harness.texts import words

SHARED_WORDS = 900
SMALL_POOL = ("--max-batch-total-tokens", "1280", "--max-total-tokens", "640")


def ask(server: Server, prompt: str, count: int, **parameters: object) -> tuple[list[int], int, int]:
    """Greedy token ids, and how many of the prompt's tokens there are and were cached."""
    wanted = {"max_new_tokens": count, "details": True, "ignore_eos_token": True, **parameters}
    body = {"inputs": prompt, "parameters": wanted}
    status, headers, answer = server.exchange("POST", "/generate", body)
    assert status == 200, answer
    ids = [token["id"] for token in answer["details"]["tokens"]]
    return ids, int(headers["x-prompt-tokens"]), int(headers["x-cached-tokens"])


def at_once(server: Server, prompts: list[str], count: int, **parameters: object) -> list[tuple[list[int], int, int]]:
    with ThreadPoolExecutor(len(prompts)) as pool:
        return list(pool.map(lambda prompt: ask(server, prompt, count, **parameters), prompts))


def variants(beginning: str, number: int) -> list[str]:
    """Prompts with one beginning and ends of their own."""
    return [f"{beginning} Question {n}: what is {n} times {n}? Answer:" for n in range(number)]


def test_a_second_request_computes_less_than_a_twentieth_of_the_shared_prefix_again(server: Server) -> None:
    first, second = variants(words(SHARED_WORDS, seed=1), 2)
    _, _, cold = ask(server, first, 4)
    hits_before = server.metric("headrace_prefix_hit_tokens_total")
    _, prompt_tokens, cached = ask(server, second, 4)
    assert cold == 0
    assert prompt_tokens >= SHARED_WORDS
    assert cached >= 0.95 * SHARED_WORDS
    assert server.metric("headrace_prefix_hit_tokens_total") - hits_before == cached


def test_a_second_turn_reuses_the_answer_of_the_first(server: Server) -> None:
    question = words(100, seed=2)
    answer = server.generate(question, max_new_tokens=100, ignore_eos_token=True)["generated_text"]
    tokens, prompt_tokens, cached = ask(server, f"{question}{answer} And then", 4)
    assert len(tokens) == 4
    assert cached >= 0.6 * prompt_tokens, "the answer was not found, only the question"


def test_a_burst_computes_its_shared_prefix_once(server: Server) -> None:
    prompts = variants(words(SHARED_WORDS, seed=3), 32)
    computed_before = server.metric("headrace_step_tokens_sum", 0)
    answers = at_once(server, prompts, 8)
    computed = server.metric("headrace_step_tokens_sum") - computed_before
    own_tokens = max(prompt_tokens for _, prompt_tokens, _ in answers) - SHARED_WORDS
    cold = sorted(cached for _, _, cached in answers)
    assert cold[0] == 0
    assert cold[1] >= 0.95 * SHARED_WORDS, f"more than one computed the prefix: {cold}"
    # The prefix once; of each its own end, the block where the prefix ends (32 tokens) and its answer.
    assert computed <= 1.05 * (SHARED_WORDS + 32 * (own_tokens + 32 + 8))


def test_choices_of_a_question_shorter_than_a_block_compute_it_once(server: Server) -> None:
    question, choices, length = words(20, seed=9), 4, 3
    computed_before = server.metric("headrace_step_tokens_sum", 0)
    body = {"prompt": question, "n": choices, "max_tokens": length, "ignore_eos": True, "temperature": 1.0, "seed": 5}
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer
    prompt = answer["usage"]["prompt_tokens"]
    assert 8 < prompt < 32, "it must lie within a block"
    # All of it once; of the other choices its last token; an answer's last token is not computed.
    computed = server.metric("headrace_step_tokens_sum") - computed_before
    assert computed == prompt + (choices - 1) + choices * (length - 1)


@pytest.fixture(scope="module")
def uncached() -> dict[str, list[int]]:
    """Answers of a server without a prefix cache."""
    server = Server("--dtype", "float32", "--no-prefix-cache")
    try:
        server.wait_until_ready()
        answers = {prompt: ask(server, prompt, 24) for prompt in CHATS}
        answers |= {prompt: ask(server, prompt, 24, truncate=64) for prompt in SIXTY_FOUR}
        assert all(cached == 0 for _, _, cached in answers.values())
        assert server.metric("headrace_prefix_hit_tokens_total") == 0
        return {prompt: ids for prompt, (ids, _, _) in answers.items()}
    finally:
        server.stop()


# Three conversations of eight branches each: beginnings of several blocks that cross block borders in other places.
CHATS = [prompt for seed, length in ((4, 70), (5, 100), (6, 135)) for prompt in variants(words(length, seed), 8)]
# Prompts that are cut to their last 64 tokens: all of one size.
SIXTY_FOUR = [f"{words(80, seed)} {PROMPTS[seed % len(PROMPTS)]}" for seed in range(100, 112)]


def wrong(answers: list[tuple[list[int], int, int]], prompts: list[str], right: dict[str, list[int]]) -> list[str]:
    pairs = zip(prompts, answers, strict=True)
    return [f"{prompt!r}: {ids}, cached {cached}" for prompt, (ids, _, cached) in pairs if ids != right[prompt]]


def test_answers_are_those_of_a_server_without_a_cache(server: Server, uncached: dict[str, list[int]]) -> None:
    for _ in range(2):
        answers = at_once(server, CHATS, 24)
        assert wrong(answers, CHATS, uncached) == []
    assert all(cached > 0 for _, _, cached in answers), "the second round found nothing: this test shows nothing"


def test_answers_stay_right_while_blocks_are_evicted_preempted_and_used_again(
    launch: Callable[..., Server], uncached: dict[str, list[int]]
) -> None:
    # 40 blocks of 32 tokens; a request needs up to 6, and 24 come at once, twice.
    server = launch("--dtype", "float32", "--admission", "watermark", "--watermark", "0", *SMALL_POOL)
    for _ in range(2):
        assert wrong(at_once(server, CHATS, 24), CHATS, uncached) == []
    assert server.metric("headrace_prefix_hit_tokens_total") > 0
    assert server.metric("headrace_prefix_evicted_blocks_total") > 0
    assert server.metric("headrace_preemptions_total") > 0


def test_each_request_preempted_once_finds_only_what_was_computed(
    launch: Callable[..., Server], uncached: dict[str, list[int]]
) -> None:
    server = launch("--dtype", "float32", "--debug-preempt-once-seed", "7", *SMALL_POOL)
    assert wrong(at_once(server, CHATS, 24), CHATS, uncached) == []
    assert server.metric("headrace_preemptions_total") >= len(CHATS)


@pytest.mark.parametrize("budget", ["64", "256"])
def test_prompts_that_use_up_the_budget_exactly_hit_nothing_that_was_not_computed(
    budget: str, launch: Callable[..., Server], uncached: dict[str, list[int]]
) -> None:
    """Text Generation Inference cached the prompt for which nothing of a full budget was left, and answered the next
    one with the same beginning from blocks that nobody had written."""
    server = launch("--dtype", "float32", "--max-batch-prefill-tokens", budget)
    for _ in range(2):
        answers = at_once(server, SIXTY_FOUR, 24, truncate=64)
        assert [prompt_tokens for _, prompt_tokens, _ in answers] == [64] * len(SIXTY_FOUR)
        assert wrong(answers, SIXTY_FOUR, uncached) == []
    assert all(cached == 32 for _, _, cached in answers), "the last token of a full hit is computed again"
