"""`huggingface_hub`'s InferenceClient, sync and async, with the server's address as its model.

The same checks pass with versions 0.36 (on requests), 1 and 2 (on httpx).
"""

import asyncio

import pytest
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import HfHubHTTPError, OverloadedError, ValidationError

from conftest import KEY, curl

FRANCE = "The capital of France is"
LIST = "Write a list of three colours:\n1."
HELLO = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
SAMPLING = {"do_sample": True, "temperature": 0.7, "top_k": 40, "top_p": 0.9, "typical_p": 0.95, "seed": 7}
EVERY_OPTION = {
    **SAMPLING,
    "details": True,
    "max_new_tokens": 4,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.1,
    "return_full_text": True,
    "stop": ["\n\n\n"],
    "truncate": 4,
    "watermark": False,
    "top_n_tokens": 2,
}
MESSAGES = [{"role": "user", "content": "Say hi."}]
CHAT = {"messages": MESSAGES, "temperature": 0.0}
EVERY_CHAT_OPTION = {
    "messages": [{"role": "system", "content": "You are terse."}, *MESSAGES],
    "model": "some/model",
    "frequency_penalty": 0.1,
    "logit_bias": [0.0],
    "logprobs": True,
    "top_logprobs": 2,
    "max_tokens": 3,
    "n": 1,
    "presence_penalty": 0.1,
    "seed": 7,
    "stop": ["\n\n\n"],
    "temperature": 0.7,
    "top_p": 0.9,
}


def tokens(answer) -> list[int]:
    """What an answer says. Its log-probabilities may differ by a rounding when others share its steps."""
    return [token.id for token in answer.details.tokens]


@pytest.fixture
def client(url: str) -> InferenceClient:
    return InferenceClient(url, timeout=60)


@pytest.fixture
def async_client(url: str) -> AsyncInferenceClient:
    return AsyncInferenceClient(url, timeout=60)


# ---- text_generation ----


def test_a_greedy_answer_is_what_curl_gets(client, url):
    expected = curl(f"{url}/generate", {"inputs": FRANCE, "parameters": {"max_new_tokens": 6, "details": True}})
    answer = client.text_generation(FRANCE, max_new_tokens=6, details=True, return_full_text=False)
    assert answer.generated_text == expected["generated_text"]
    assert tokens(answer) == [token["id"] for token in expected["details"]["tokens"]]
    assert answer.details.finish_reason == "length"
    assert answer.details.generated_tokens == 6
    assert answer.details.seed is None


def test_the_prompt_is_part_of_the_answer_unless_the_client_says_otherwise(client):
    assert client.text_generation(FRANCE, max_new_tokens=2).startswith(FRANCE)
    assert not client.text_generation(FRANCE, max_new_tokens=2, return_full_text=False).startswith(FRANCE)


def test_every_option_at_once(client):
    answer = client.text_generation(FRANCE, **EVERY_OPTION)
    assert answer.generated_text.startswith(FRANCE)
    assert answer.details.seed == 7
    assert [len(tokens) for tokens in answer.details.top_tokens] == [2, 2, 2, 2]


def test_the_prompt_and_its_log_probabilities_come_with_decoder_input_details(client):
    answer = client.text_generation(FRANCE, max_new_tokens=1, details=True, decoder_input_details=True)
    prefill = answer.details.prefill
    assert "".join(token.text for token in prefill) == FRANCE
    assert prefill[0].logprob is None
    assert all(token.logprob < 0 for token in prefill[1:])


def test_best_of_two_gives_the_other_one_too(client):
    details = client.text_generation(FRANCE, max_new_tokens=3, details=True, best_of=2, do_sample=True).details
    (other,) = details.best_of_sequences
    assert other.generated_tokens == 3


def test_a_stop_sequence_ends_the_answer_and_stays_in_it(client):
    answer = client.text_generation(LIST, max_new_tokens=20, details=True, stop=["\n"], return_full_text=False)
    assert answer.details.finish_reason == "stop_sequence"
    assert answer.generated_text.endswith("\n")


def test_an_answer_ends_with_the_end_of_sequence_token(client):
    details = client.text_generation(HELLO, max_new_tokens=40, details=True).details
    assert details.finish_reason == "eos_token"
    assert details.tokens[-1].special


def test_a_stream_is_the_whole_answer_token_by_token(client):
    texts = list(client.text_generation(FRANCE, max_new_tokens=6, stream=True))
    assert len(texts) == 6
    assert "".join(texts) == client.text_generation(FRANCE, max_new_tokens=6, return_full_text=False)


def test_a_stream_with_details_counts_from_one_and_ends_with_the_whole_text(client):
    events = list(client.text_generation(FRANCE, max_new_tokens=4, stream=True, details=True, return_full_text=False))
    assert [event.index for event in events] == [1, 2, 3, 4]
    assert [event.details for event in events[:-1]] == [None] * 3
    assert events[-1].details.finish_reason == "length"
    assert events[-1].details.input_length == 5
    assert events[-1].generated_text == "".join(event.token.text for event in events)


def test_a_stream_with_every_option_at_once(client):
    events = list(client.text_generation(FRANCE, stream=True, **EVERY_OPTION))
    assert events[-1].generated_text.startswith(FRANCE)
    assert events[-1].details.seed == 7
    assert all(len(event.top_tokens) == 2 for event in events)


def test_unicode_line_separators_do_not_cut_an_event(client):
    """httpx splits lines where Unicode does, so these must be escaped in an event's JSON."""
    odd = "one\u2028two\u2029three\u0085four\x0bfive\x0csix\x1cseven"
    events = list(client.text_generation(odd, max_new_tokens=1, stream=True, details=True, return_full_text=True))
    assert events[-1].generated_text.startswith(odd)


def test_a_bad_field_is_a_validation_error_with_a_sentence(client):
    with pytest.raises(ValidationError, match=r"`inputs` tokens \+ `max_new_tokens` must be <="):
        client.text_generation(FRANCE, max_new_tokens=100_000)


def test_a_stream_that_is_refused_raises_a_validation_error(client):
    with pytest.raises(ValidationError, match="max_new_tokens"):
        list(client.text_generation(FRANCE, max_new_tokens=100_000, stream=True))


@pytest.mark.parametrize(
    "option",
    [{"watermark": True}, {"adapter_id": "mine"}, {"grammar": {"type": "regex", "value": "a+"}}],
    ids=["watermark", "adapter_id", "grammar"],
)
def test_what_this_server_does_not_do_is_a_validation_error_that_names_it(client, option):
    with pytest.raises(ValidationError, match=next(iter(option))):
        client.text_generation(FRANCE, max_new_tokens=2, **option)


def test_a_second_request_of_a_busy_server_is_an_overloaded_error(busy_url):
    client = InferenceClient(busy_url, timeout=60)
    first = client.text_generation(FRANCE, max_new_tokens=500, stream=True)
    next(first)
    try:
        with pytest.raises(OverloadedError, match="overloaded"):
            client.text_generation(FRANCE)
    finally:
        first.close()


# ---- chat_completion ----


def test_a_chat_answers_in_openais_shape(client):
    answer = client.chat_completion(max_tokens=4, **CHAT)
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 4
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 4
    assert answer.id
    assert answer.created > 1_600_000_000


def test_a_chat_ends_with_the_models_end(client):
    answer = client.chat_completion(max_tokens=40, **CHAT)
    assert answer.choices[0].finish_reason == "stop"
    assert "<|im_end|>" not in answer.choices[0].message.content


def test_a_chat_with_every_option_at_once(client):
    answer = client.chat_completion(**EVERY_CHAT_OPTION)
    logprobs = answer.choices[0].logprobs.content
    assert [len(token.top_logprobs) for token in logprobs] == [2, 2, 2]
    assert answer.choices[0].finish_reason == "length"


def test_a_chat_in_parts_equals_one_in_text(client):
    parts = [{"type": "text", "text": "Say "}, {"type": "text", "text": "hi."}]
    in_parts = client.chat_completion([{"role": "user", "content": parts}], temperature=0.0, max_tokens=4)
    assert in_parts.choices[0].message == client.chat_completion(max_tokens=4, **CHAT).choices[0].message


def test_response_format_text_is_accepted(client):
    answer = client.chat_completion(max_tokens=2, response_format={"type": "text"}, **CHAT)
    assert answer.choices[0].message.content


def test_a_chat_stream_is_the_whole_answer_piece_by_piece(client):
    chunks = list(client.chat_completion(max_tokens=4, stream=True, **CHAT))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == client.chat_completion(max_tokens=4, **CHAT).choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_chat_stream_with_every_option_at_once_ends_with_the_usage(client):
    chunks = list(client.chat_completion(stream=True, stream_options={"include_usage": True}, **EVERY_CHAT_OPTION))
    assert chunks[-1].usage.completion_tokens == 3
    assert chunks[-1].choices == []
    logprobs = [token for chunk in chunks[:-1] for token in (chunk.choices[0].logprobs or no_logprobs).content]
    assert [len(token.top_logprobs) for token in logprobs] == [2, 2, 2]


class no_logprobs:
    content = ()


def test_the_openai_way_of_calling_it_works_too(url):
    client = InferenceClient(base_url=url, api_key="unused", timeout=60)
    answer = client.chat.completions.create(messages=MESSAGES, model="whatever", max_tokens=2, temperature=0.0)
    assert answer.usage.completion_tokens == 2


def test_a_bad_chat_is_an_http_error_that_says_why(client):
    with pytest.raises(HfHubHTTPError) as caught:
        client.chat_completion(max_tokens=100_000, **CHAT)
    assert caught.value.response.status_code == 422
    assert "max_tokens" in caught.value.response.text


# ---- what else it asks of a server ----


def test_it_reads_what_the_server_says_of_itself(url):
    client = InferenceClient(url, provider="hf-inference", timeout=60)
    info = client.get_endpoint_info()
    assert info == curl(f"{url}/info")
    # Fields that TGI 2 had and TGI 3 has not.
    assert {"model_dtype", "model_device_type", "max_batch_total_tokens", "max_batch_size"} <= set(info)
    assert client.health_check() is True


def test_the_key_opens_a_locked_server(locked_url):
    client = InferenceClient(locked_url, token=KEY, timeout=60)
    assert client.text_generation(FRANCE, max_new_tokens=2, details=True).details.generated_tokens == 2
    assert client.chat_completion(MESSAGES, max_tokens=2).usage.completion_tokens == 2


def test_without_the_key_it_gets_401(locked_url):
    with pytest.raises(HfHubHTTPError) as caught:
        InferenceClient(locked_url, timeout=60).chat_completion(MESSAGES)
    assert caught.value.response.status_code == 401


# ---- async ----


def test_async_answers_at_once_equal_those_one_by_one(client, async_client):
    prompts = [FRANCE, LIST, HELLO]

    async def all_at_once():
        return await asyncio.gather(*(async_client.text_generation(prompt, max_new_tokens=4) for prompt in prompts))

    assert asyncio.run(all_at_once()) == [client.text_generation(prompt, max_new_tokens=4) for prompt in prompts]


def test_an_async_stream_with_every_option_at_once(async_client):
    async def stream():
        return [event async for event in await async_client.text_generation(FRANCE, stream=True, **EVERY_OPTION)]

    assert asyncio.run(stream())[-1].details.seed == 7


def test_an_async_chat_and_its_stream_equal_the_sync_one(client, async_client):
    async def both():
        whole = await async_client.chat_completion(max_tokens=4, **CHAT)
        chunks = [chunk async for chunk in await async_client.chat_completion(max_tokens=4, stream=True, **CHAT)]
        return whole.choices[0].message.content, chunks

    whole, chunks = asyncio.run(both())
    assert whole == "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert whole == client.chat_completion(max_tokens=4, **CHAT).choices[0].message.content


def test_async_errors_are_the_same_exceptions(async_client):
    async def ask_and_stream():
        with pytest.raises(ValidationError, match="max_new_tokens"):
            await async_client.text_generation(FRANCE, max_new_tokens=100_000)
        with pytest.raises(ValidationError, match="max_new_tokens"):
            async for _ in await async_client.text_generation(FRANCE, max_new_tokens=100_000, stream=True):
                pass

    asyncio.run(ask_and_stream())
