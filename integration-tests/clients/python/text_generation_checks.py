"""`text-generation`, TGI's own Python client: generate, generate_stream and chat, sync and async.

Its chat streams are left out: it cannot read those of TGI either. It demands `tool_calls` in every delta, and parses
`[DONE]` as JSON.
"""

import asyncio

import pytest
from text_generation import AsyncClient, Client
from text_generation.errors import OverloadedError, UnknownError, ValidationError
from text_generation.types import FinishReason, Message

from conftest import KEY, curl

FRANCE = "The capital of France is"
LIST = "Write a list of three colours:\n1."
# The model answers with two line ends and then emoji, of three tokens each.
EMOJI = "Say it with an emoji: 🙂"
HELLO = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
SAMPLING = {"do_sample": True, "temperature": 0.7, "top_k": 40, "top_p": 0.9, "typical_p": 0.95, "seed": 7}
EVERY_OPTION = {
    **SAMPLING,
    "max_new_tokens": 4,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.1,
    "return_full_text": True,
    "stop_sequences": ["\n\n\n"],
    "truncate": 4,
    "watermark": False,
    "top_n_tokens": 2,
}
CHAT = {"messages": [Message(role="user", content="Say hi.")], "temperature": 0.0}


def tokens(answer) -> list[int]:
    """What an answer says. Its log-probabilities may differ by a rounding when others share its steps."""
    return [token.id for token in answer.details.tokens]


@pytest.fixture
def client(url: str) -> Client:
    return Client(url, timeout=60)


@pytest.fixture
def async_client(url: str) -> AsyncClient:
    return AsyncClient(url, timeout=60)


# ---- generate ----


def test_a_greedy_answer_is_what_curl_gets(client, url):
    answer = client.generate(FRANCE, max_new_tokens=6)
    expected = curl(f"{url}/generate", {"inputs": FRANCE, "parameters": {"max_new_tokens": 6, "details": True}})
    assert answer.generated_text == expected["generated_text"]
    assert tokens(answer) == [token["id"] for token in expected["details"]["tokens"]]
    assert answer.details.finish_reason == FinishReason.Length
    assert answer.details.generated_tokens == 6
    assert answer.details.seed is None
    assert answer.details.prefill == []


def test_every_option_at_once(client):
    answer = client.generate(FRANCE, **EVERY_OPTION)
    assert answer.generated_text.startswith(FRANCE)
    assert answer.details.seed == 7
    assert [len(tokens) for tokens in answer.details.top_tokens] == [2, 2, 2, 2]


def test_the_same_seed_gives_the_same_answer(client):
    once, again = (client.generate(FRANCE, max_new_tokens=5, **SAMPLING) for _ in range(2))
    assert tokens(once) == tokens(again)


def test_the_prompt_and_its_log_probabilities_come_with_decoder_input_details(client):
    prefill = client.generate(FRANCE, max_new_tokens=1, decoder_input_details=True).details.prefill
    assert "".join(token.text for token in prefill) == FRANCE
    assert prefill[0].logprob is None
    assert all(token.logprob < 0 for token in prefill[1:])


def test_best_of_two_gives_the_other_one_too(client):
    details = client.generate(FRANCE, max_new_tokens=3, best_of=2, do_sample=True).details
    (other,) = details.best_of_sequences
    assert other.generated_tokens == 3
    assert sum(token.logprob for token in other.tokens) <= sum(token.logprob for token in details.tokens)


def test_a_stop_sequence_ends_the_answer_and_stays_in_it(client):
    answer = client.generate(LIST, max_new_tokens=20, stop_sequences=["\n"])
    assert answer.details.finish_reason == FinishReason.StopSequence
    assert answer.generated_text.endswith("\n")


def test_an_answer_ends_with_the_end_of_sequence_token(client):
    details = client.generate(HELLO, max_new_tokens=40).details
    assert details.finish_reason == FinishReason.EndOfSequenceToken
    assert details.tokens[-1].special


def test_an_answer_that_ends_inside_a_character_keeps_the_characters_before(client):
    text = client.generate(EMOJI, max_new_tokens=7).generated_text
    assert text.strip()
    assert "\ufffd" not in text


def test_a_bad_field_is_a_validation_error_with_a_sentence(client):
    with pytest.raises(ValidationError, match=r"`inputs` tokens \+ `max_new_tokens` must be <="):
        client.generate(FRANCE, max_new_tokens=100_000)


def test_what_this_server_does_not_do_is_a_validation_error(client):
    with pytest.raises(ValidationError, match="watermark"):
        client.generate(FRANCE, watermark=True)


# ---- generate_stream ----


def test_a_stream_is_the_whole_answer_token_by_token(client):
    events = list(client.generate_stream(FRANCE, max_new_tokens=6))
    whole = client.generate(FRANCE, max_new_tokens=6)
    assert [event.token.id for event in events] == tokens(whole)
    assert "".join(event.token.text for event in events) == events[-1].generated_text == whole.generated_text
    assert [event.generated_text for event in events[:-1]] == [None] * 5
    assert events[-1].details.finish_reason == FinishReason.Length
    assert events[-1].details.generated_tokens == 6


def test_a_stream_with_every_option_at_once(client):
    events = list(client.generate_stream(FRANCE, **EVERY_OPTION))
    assert events[-1].generated_text.startswith(FRANCE)
    assert events[-1].details.seed == 7
    assert all(len(event.top_tokens) == 2 for event in events)


def test_a_stream_that_is_refused_raises_a_validation_error(client):
    with pytest.raises(ValidationError, match="max_new_tokens"):
        list(client.generate_stream(FRANCE, max_new_tokens=100_000))


# ---- errors of the server ----


def test_a_second_request_of_a_busy_server_is_an_overloaded_error(busy_url):
    client = Client(busy_url, timeout=60)
    first = client.generate_stream(FRANCE, max_new_tokens=500)
    next(first)
    try:
        with pytest.raises(OverloadedError, match="overloaded"):
            client.generate(FRANCE)
    finally:
        first.close()


def test_the_key_opens_a_locked_server(locked_url):
    client = Client(locked_url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)
    assert client.generate(FRANCE, max_new_tokens=2).details.generated_tokens == 2


def test_without_the_key_the_client_can_read_why_it_is_refused(locked_url):
    with pytest.raises(UnknownError, match="key"):
        Client(locked_url, timeout=60).generate(FRANCE, max_new_tokens=2)


# ---- async ----


def test_async_answers_at_once_equal_those_one_by_one(client, async_client):
    prompts = [FRANCE, LIST, HELLO]

    async def all_at_once():
        return await asyncio.gather(*(async_client.generate(prompt, max_new_tokens=5) for prompt in prompts))

    together = [tokens(answer) for answer in asyncio.run(all_at_once())]
    assert together == [tokens(client.generate(prompt, max_new_tokens=5)) for prompt in prompts]


def test_an_async_stream_is_the_whole_answer(client, async_client):
    async def stream():
        return [event async for event in async_client.generate_stream(FRANCE, max_new_tokens=6)]

    events = asyncio.run(stream())
    assert [event.token.id for event in events] == tokens(client.generate(FRANCE, max_new_tokens=6))
    assert events[-1].details.generated_tokens == 6


def test_an_async_stream_with_every_option_at_once(async_client):
    async def stream():
        return [event async for event in async_client.generate_stream(FRANCE, **EVERY_OPTION)]

    assert asyncio.run(stream())[-1].details.seed == 7


def test_async_errors_are_the_same_exceptions(async_client):
    async def stream():
        return [event async for event in async_client.generate_stream(FRANCE, max_new_tokens=100_000)]

    with pytest.raises(ValidationError, match="max_new_tokens"):
        asyncio.run(async_client.generate(FRANCE, max_new_tokens=100_000))
    with pytest.raises(ValidationError, match="max_new_tokens"):
        asyncio.run(stream())


# ---- chat ----


def test_a_chat_answer_has_all_that_the_client_demands(client):
    answer = client.chat(max_tokens=4, **CHAT)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason == "length"
    assert choice.logprobs is None
    assert answer.usage["completion_tokens"] == 4
    assert answer.id
    assert answer.system_fingerprint


def test_a_chat_with_every_option_at_once(client):
    answer = client.chat(
        CHAT["messages"],
        repetition_penalty=1.1,
        frequency_penalty=0.1,
        presence_penalty=0.1,
        logit_bias=[0.0],
        logprobs=True,
        top_logprobs=2,
        max_tokens=3,
        n=1,
        seed=7,
        temperature=0.7,
        top_p=0.9,
    )
    content = answer.choices[0].logprobs["content"]
    assert [len(token["top_logprobs"]) for token in content] == [2, 2, 2]


def test_an_async_chat_equals_a_sync_one(client, async_client):
    answer = asyncio.run(async_client.chat(max_tokens=4, **CHAT))
    assert answer.choices[0].message == client.chat(max_tokens=4, **CHAT).choices[0].message


def test_a_bad_chat_is_a_validation_error(client):
    with pytest.raises(ValidationError):
        client.chat(max_tokens=100_000, **CHAT)
