"""A seed says what an answer is: choice i of a request is the answer of a request with seed + i alone."""

import json
from typing import Any

from harness.server import Server

PROMPT = "Once upon a time"
CHAT = [{"role": "user", "content": "Tell me a story."}]
SEED = 2**63 - 2  # the choices' seeds go beyond it
CHOICES = 3
TOKENS = 8


def text_of(choice: dict[str, Any]) -> str:
    return choice["text"] if "text" in choice else choice["message"]["content"]


def texts(server: Server, path: str, body: dict[str, Any]) -> list[str]:
    """The choices' texts, by index."""
    status, answer = server.post(path, {"max_tokens": TOKENS, "temperature": 1.0, "ignore_eos": True, **body})
    assert status == 200, answer
    return [text_of(choice) for choice in sorted(answer["choices"], key=lambda choice: choice["index"])]


def streamed_texts(server: Server, path: str, body: dict[str, Any]) -> list[str]:
    sampled = {"max_tokens": TOKENS, "temperature": 1.0, "ignore_eos": True, "stream": True, **body}
    status, _, raw = server.request("POST", path, sampled)
    assert status == 200, raw
    parts: dict[int, str] = {}
    for line in raw.decode().splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                added = choice["text"] if "text" in choice else choice["delta"]["content"]
                parts[choice["index"]] = parts.get(choice["index"], "") + added
    return [parts[index] for index in sorted(parts)]


def check_choices(server: Server, path: str, body: dict[str, Any]) -> None:
    alone = [texts(server, path, {**body, "seed": SEED + choice})[0] for choice in range(CHOICES)]
    assert len(set(alone)) == CHOICES, "seeds that all say the same prove nothing"
    together = {**body, "seed": SEED, "n": CHOICES}
    assert texts(server, path, together) == alone
    assert streamed_texts(server, path, together) == alone


def test_choices_of_a_completion_are_the_answers_of_the_seeds_that_follow(server: Server) -> None:
    check_choices(server, "/v1/completions", {"prompt": PROMPT})


def test_choices_of_a_chat_are_the_answers_of_the_seeds_that_follow(server: Server) -> None:
    check_choices(server, "/v1/chat/completions", {"messages": CHAT})


def test_seeds_go_on_from_prompt_to_prompt_of_a_list(server: Server) -> None:
    """A choice's index counts through all prompts, and so does its seed."""
    first = texts(server, "/v1/completions", {"prompt": PROMPT, "seed": 7, "n": 2})
    second = texts(server, "/v1/completions", {"prompt": "In the beginning", "seed": 9, "n": 2})
    together = texts(server, "/v1/completions", {"prompt": [PROMPT, "In the beginning"], "seed": 7, "n": 2})
    assert together == first + second


def test_the_best_of_a_completion_is_among_the_answers_of_the_seeds(server: Server) -> None:
    """The one whose tokens are likeliest on average."""
    candidates = {}
    for seed in (7, 8):
        body = {
            "prompt": PROMPT,
            "max_tokens": TOKENS,
            "temperature": 1.0,
            "ignore_eos": True,
            "logprobs": 1,
            "seed": seed,
        }
        choice = server.post("/v1/completions", body)[1]["choices"][0]
        candidates[sum(choice["logprobs"]["token_logprobs"])] = choice["text"]
    assert texts(server, "/v1/completions", {"prompt": PROMPT, "seed": 7, "best_of": 2}) == [
        candidates[max(candidates)]
    ]


def test_every_sequence_of_best_of_names_the_seed_that_gives_it_again(server: Server) -> None:
    """TGI's route takes no seed beside best_of; it draws the first, and shows all."""
    parameters = {"max_new_tokens": TOKENS, "do_sample": True, "ignore_eos_token": True, "details": True}
    answer = server.generate(PROMPT, best_of=2, **parameters)
    details = answer["details"]
    sequences = {details["seed"]: answer["generated_text"]}
    sequences |= {other["seed"]: other["generated_text"] for other in details["best_of_sequences"]}
    assert len(sequences) == 2
    first, second = sorted(sequences)
    assert second == first + 1
    for seed, text in sequences.items():
        assert server.generate(PROMPT, seed=seed, **parameters)["generated_text"] == text
