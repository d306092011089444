"""`litellm`: its huggingface/ and openai/ routes, with the server's address as `api_base`."""

import asyncio

import litellm
import pytest

from conftest import KEY, TOLERATED, curl

FRANCE = "The capital of France is"
SAY_HI = [{"role": "user", "content": "Say hi."}]
GREEDY = {"messages": SAY_HI, "max_tokens": 4, "temperature": 0, "timeout": 60, "num_retries": 0, "max_retries": 0}
PROVIDERS = ("huggingface", "openai")
# There it looks up the context length of each model of the first route.
TOLERATED.add("huggingface.co")


@pytest.fixture(params=PROVIDERS)
def route(request, url: str) -> dict[str, str]:
    return address(request.param, url)


def address(provider: str, url: str, key: str = "unused") -> dict[str, str]:
    base = {"huggingface": url, "openai": f"{url}/v1"}[provider]
    return {"model": f"{provider}/tgi", "api_base": base, "api_key": key}


def test_a_chat_is_answered(route):
    answer = litellm.completion(**route, **GREEDY)
    (choice,) = answer.choices
    assert choice.message.content
    assert choice.message.role == "assistant"
    assert choice.finish_reason == "length"
    assert answer.usage.completion_tokens == 4


def test_a_chat_stream_adds_up_to_the_whole_answer_and_its_usage(route):
    chunks = list(litellm.completion(stream=True, stream_options={"include_usage": True}, **route, **GREEDY))
    whole = litellm.stream_chunk_builder(chunks)
    assert whole.choices[0].message.content == litellm.completion(**route, **GREEDY).choices[0].message.content
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 4


def test_a_chat_ends_at_its_stop_word(route):
    answer = litellm.completion(stop=["!"], **route, **{**GREEDY, "max_tokens": 40})
    assert answer.choices[0].finish_reason == "stop"
    assert "!" not in answer.choices[0].message.content


def test_a_chat_with_many_options_at_once(route):
    wish = {**GREEDY, "temperature": 0.7, "top_p": 0.9, "seed": 7, "frequency_penalty": 0.1, "presence_penalty": 0.1}
    answer = litellm.completion(n=2, logprobs=True, top_logprobs=2, user="somebody", **route, **wish)
    assert len(answer.choices) == 2


def test_async_equals_sync(route):
    async def both():
        whole = await litellm.acompletion(**route, **GREEDY)
        stream = await litellm.acompletion(stream=True, **route, **GREEDY)
        return whole.choices[0].message.content, "".join([c.choices[0].delta.content or "" async for c in stream])

    whole, streamed = asyncio.run(both())
    assert whole == streamed == litellm.completion(**route, **GREEDY).choices[0].message.content


def test_a_bad_field_is_an_error_that_says_so(url):
    wish = {**GREEDY, "max_tokens": 100_000}
    with pytest.raises(litellm.BadRequestError, match="tokens"):
        litellm.completion(**address("openai", url), **wish)
    with pytest.raises(litellm.APIError, match="tokens") as caught:
        litellm.completion(**address("huggingface", url), **wish)
    assert caught.value.status_code == 422


@pytest.mark.parametrize("provider", PROVIDERS)
def test_without_the_right_key_it_is_an_authentication_error(locked_url, provider):
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(**address(provider, locked_url, "wrong"), **GREEDY)
    assert litellm.completion(**address(provider, locked_url, KEY), **GREEDY).usage.completion_tokens == 4


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_second_request_of_a_busy_server_is_a_rate_limit_error(busy_url, provider):
    route = address(provider, busy_url)
    first = litellm.completion(stream=True, **route, **{**GREEDY, "max_tokens": 60})
    next(iter(first))
    with pytest.raises(litellm.RateLimitError):
        litellm.completion(**route, **GREEDY)
    list(first)  # to its end: it cannot be closed, and the next check wants the server for itself


def test_a_text_completion_is_what_generate_answers(url):
    expected = curl(f"{url}/generate", {"inputs": FRANCE, "parameters": {"max_new_tokens": 4}})["generated_text"]
    route = {"model": "text-completion-openai/tgi", "api_base": f"{url}/v1", "api_key": "unused"}
    answer = litellm.text_completion(prompt=FRANCE, max_tokens=4, temperature=0, **route)
    assert answer.choices[0].text == expected
    stream = litellm.text_completion(prompt=FRANCE, max_tokens=4, temperature=0, stream=True, **route)
    assert "".join(chunk.choices[0].text or "" for chunk in stream) == expected
