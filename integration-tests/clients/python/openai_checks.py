"""`openai`, the official Python SDK, pointed at the server by `base_url`.

Here it validates every answer against its own types, which by default it does not.
"""

import asyncio

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from conftest import KEY, curl

FRANCE = "The capital of France is"
LIST = "Write a list of three colours:\n1."
SAY_HI = [{"role": "user", "content": "Say hi."}]
MODEL = "tgi"
TOO_MANY = 100_000  # tokens: more than the model's context
# The model answers with two line ends and then emoji, of three tokens each.
EMOJI = "Say it with an emoji: 🙂"


def connect(url: str, key: str = "unused", strict: bool = True) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60, _strict_response_validation=strict)


@pytest.fixture
def client(url: str) -> OpenAI:
    return connect(url)


@pytest.fixture
def async_client(url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{url}/v1", api_key="-", max_retries=0, timeout=60, _strict_response_validation=True)


@pytest.fixture
def complete(url):
    """Greedy completions of a few tokens."""
    whole = connect(url)
    # By the SDK's types each chunk of a completion has a reason to end; OpenAI's own API says null before the last.
    stream = connect(url, strict=False)

    def complete(prompt=FRANCE, **more):
        client = stream if more.get("stream") else whole
        wanted = {"model": MODEL, "prompt": prompt, "max_tokens": 4, "temperature": 0, **more}
        return client.completions.create(**wanted)

    return complete


@pytest.fixture
def chat(client):
    """Greedy chats of a few tokens."""

    def chat(messages=SAY_HI, **more):
        wanted = {"model": MODEL, "messages": messages, "max_tokens": 4, "temperature": 0, **more}
        return client.chat.completions.create(**wanted)

    return chat


@pytest.fixture
def ids(url):
    """Token ids of a text."""
    return lambda text: [token["id"] for token in curl(f"{url}/tokenize", {"inputs": text})]


# ---- models ----


def test_the_model_is_listed_and_can_be_asked_for(client, url):
    (model,) = client.models.list().data
    assert model.id == curl(f"{url}/info")["model_id"]
    assert client.models.retrieve(model.id) == model


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("nobody/nothing")
    assert caught.value.code == "model_not_found"


# ---- completions ----


def test_a_greedy_completion_is_what_generate_answers(complete, url):
    answer = complete()
    expected = curl(f"{url}/generate", {"inputs": FRANCE, "parameters": {"max_new_tokens": 4}})["generated_text"]
    (choice,) = answer.choices
    assert choice.text == expected
    assert choice.finish_reason == "length"
    assert answer.id
    assert answer.created > 1_600_000_000
    assert answer.usage.prompt_tokens == 5
    assert answer.usage.completion_tokens == 4
    assert answer.usage.total_tokens == 9


def test_tokens_that_were_computed_before_are_counted_as_cached(complete):
    long = "All work and no play makes Jack a dull boy. " * 16
    complete(long, max_tokens=1)
    details = complete(long, max_tokens=1).usage.prompt_tokens_details
    assert details.cached_tokens >= 64


def test_a_list_of_prompts_is_answered_in_its_order(complete):
    answer = complete([FRANCE, LIST])
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert [choice.text for choice in answer.choices] == [complete(p).choices[0].text for p in (FRANCE, LIST)]
    assert answer.usage.completion_tokens == 8


def test_token_ids_are_a_prompt_too(complete, ids):
    text = complete().choices[0].text
    assert complete(ids(FRANCE)).choices[0].text == text
    assert [choice.text for choice in complete([ids(FRANCE), ids(FRANCE)]).choices] == [text, text]


def test_n_choices_of_each_prompt(complete):
    answer = complete([FRANCE, LIST], n=2, temperature=1, seed=3, max_tokens=2)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage.completion_tokens <= 8


def test_best_of_draws_more_than_it_shows(complete):
    answer = complete(best_of=2, temperature=1, max_tokens=2)
    assert len(answer.choices) == 1
    assert answer.usage.completion_tokens <= 4


def test_echo_puts_the_prompt_before_the_answer(complete):
    assert complete(echo=True).choices[0].text == FRANCE + complete().choices[0].text


def test_log_probabilities_of_each_token(complete):
    logprobs = complete(logprobs=2).choices[0].logprobs
    assert "".join(logprobs.tokens) == complete().choices[0].text
    assert len(logprobs.token_logprobs) == 4
    assert all(value < 0 for value in logprobs.token_logprobs)
    for token, top in zip(logprobs.tokens, logprobs.top_logprobs, strict=True):
        assert token in top  # greedy: it is the first of them
        assert len(top) == 2
    assert logprobs.text_offset[0] == 0


@pytest.mark.parametrize("stop", ["\n", ["never said", "\n"]], ids=["text", "list"])
def test_a_stop_string_ends_the_answer_and_is_not_part_of_it(complete, stop):
    (choice,) = complete(LIST, stop=stop, max_tokens=20).choices
    assert choice.finish_reason == "stop"
    assert "\n" not in choice.text


def test_a_logit_bias_bans_a_token(complete, ids):
    first = complete(max_tokens=1).choices[0].text
    (banned,) = ids(first)
    assert complete(max_tokens=1, logit_bias={str(banned): -100}).choices[0].text != first


def test_the_same_seed_gives_the_same_answer(complete):
    once, again = (complete(seed=7, temperature=1).choices[0].text for _ in range(2))
    assert once == again


def test_temperature_zero_is_greedy_whatever_else_is_asked(complete):
    assert complete(top_p=0.5, seed=1).choices[0].text == complete(top_p=1).choices[0].text


def test_every_option_of_a_completion_at_once(complete):
    answer = complete(
        best_of=1,
        echo=False,
        frequency_penalty=0.1,
        logit_bias={"5": 1},
        logprobs=1,
        n=1,
        presence_penalty=0.1,
        seed=7,
        stop=["\n\n\n"],
        stream=False,
        suffix=None,
        temperature=0.7,
        top_p=0.9,
        user="somebody",
        extra_body={"ignore_eos": True, "some_other_servers_field": 1},
    )
    assert answer.usage.completion_tokens == 4


def test_a_completion_stream_is_the_whole_answer_piece_by_piece(complete):
    chunks = list(complete(stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == complete().choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_completion_stream_ends_with_the_usage_if_asked(complete):
    chunks = list(complete(stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 4
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_an_answer_that_ends_inside_a_character_keeps_the_characters_before(complete):
    text = complete(EMOJI, max_tokens=7).choices[0].text
    assert text.strip()
    assert "\ufffd" not in text
    assert text == "".join(chunk.choices[0].text for chunk in complete(EMOJI, max_tokens=7, stream=True))


def test_unicode_line_separators_do_not_cut_an_event(complete):
    odd = "one\u2028two\u2029three\u0085four\x0bfive\x0csix\x1cseven"
    chunks = list(complete(odd, echo=True, max_tokens=1, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks).startswith(odd)


def test_a_stream_of_several_prompts_tells_them_apart(complete):
    texts = ["", ""]
    for chunk in complete([FRANCE, LIST], stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in complete([FRANCE, LIST]).choices]


# ---- chat ----


def test_a_chat_answers_with_a_message(chat):
    answer = chat()
    (choice,) = answer.choices
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason == "length"
    assert answer.id
    assert answer.usage.completion_tokens == 4
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 4


def test_a_chat_ends_with_the_models_end(chat):
    (choice,) = chat(max_tokens=40).choices
    assert choice.finish_reason == "stop"
    assert "<|im_end|>" not in choice.message.content


@pytest.mark.parametrize("stop", ["!", ["never said", "!"]], ids=["text", "list"])
def test_a_stop_string_ends_a_chat_and_is_not_part_of_it(chat, stop):
    (choice,) = chat(stop=stop, max_tokens=40).choices
    assert choice.finish_reason == "stop"
    assert "!" not in choice.message.content


def test_content_in_parts_equals_content_as_text(chat):
    parts = [{"type": "text", "text": "Say "}, {"type": "text", "text": "hi."}]
    assert chat([{"role": "user", "content": parts}]).choices[0].message == chat().choices[0].message


def test_every_role_is_taken(chat):
    conversation = [
        {"role": "system", "content": "You are terse."},
        {"role": "developer", "content": "Very."},
        {"role": "user", "content": "Say hi.", "name": "ann"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Again."},
    ]
    assert chat(conversation).usage.prompt_tokens > chat().usage.prompt_tokens


def test_n_choices_of_a_chat(chat):
    answer = chat(n=2, temperature=1, seed=3, max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.usage.completion_tokens <= 6


def test_log_probabilities_of_a_chat(chat):
    content = chat(logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert "".join(token.token for token in content) == chat().choices[0].message.content
    assert [len(token.top_logprobs) for token in content] == [2, 2, 2, 2]
    assert bytes(content[0].bytes).decode() == content[0].token


def test_both_names_of_the_token_limit_work_alone_and_together(client):
    ask = client.chat.completions.create
    greedy = {"model": MODEL, "messages": SAY_HI, "temperature": 0}
    assert ask(max_completion_tokens=2, **greedy).usage.completion_tokens == 2
    assert ask(max_completion_tokens=2, max_tokens=2, **greedy).usage.completion_tokens == 2


def test_every_option_of_a_chat_at_once(chat):
    answer = chat(
        frequency_penalty=0.1,
        logit_bias={"5": 1},
        logprobs=True,
        max_completion_tokens=3,
        max_tokens=3,
        metadata={"run": "1"},
        n=1,
        parallel_tool_calls=True,
        presence_penalty=0.1,
        prompt_cache_key="p",
        reasoning_effort="low",
        response_format={"type": "text"},
        safety_identifier="s",
        seed=7,
        service_tier="auto",
        stop=["\n\n\n"],
        store=False,
        stream=False,
        temperature=0.7,
        tool_choice="none",
        top_logprobs=2,
        top_p=1,
        user="somebody",
        verbosity="low",
        extra_body={"chat_template_kwargs": {"x": 1}, "some_other_servers_field": 1, "stream_options": None},
    )
    assert answer.usage.completion_tokens == 3


def test_tools_that_may_not_be_called_are_no_obstacle(chat):
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    assert chat(tools=[tool], tool_choice="none").choices[0].message.content


@pytest.mark.parametrize(
    "wish",
    [
        {"response_format": {"type": "json_object"}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]},
    ],
    ids=["response_format", "tools"],
)
def test_what_this_server_does_not_do_yet_is_refused_by_name(chat, wish):
    with pytest.raises(openai.UnprocessableEntityError, match=next(iter(wish))):
        chat(**wish)


def test_a_chat_stream_is_the_whole_answer_piece_by_piece(chat):
    chunks = list(chat(stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content or "" for delta in deltas) == chat().choices[0].message.content
    # Who concatenates deltas, as this SDK does, would get "assistantassistant" otherwise.
    assert [delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_chat_stream_ends_with_the_usage_if_asked(chat):
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 4
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_stream_of_two_choices_tells_them_apart(chat):
    wish = {"n": 2, "temperature": 1, "seed": 3, "max_tokens": 3}
    texts = ["", ""]
    for chunk in chat(stream=True, **wish):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in chat(**wish).choices]


def test_the_sdks_helper_puts_a_stream_together(client, chat):
    # An answer that ends for its length would be an exception there.
    wish = {"model": MODEL, "messages": SAY_HI, "max_tokens": 40, "temperature": 0, "logprobs": True}
    with client.chat.completions.stream(**wish) as stream:
        kinds = {event.type for event in stream}
        whole = stream.get_final_completion()
    assert "content.delta" in kinds
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].message.content.startswith(chat().choices[0].message.content)
    assert whole.choices[0].finish_reason == "stop"
    assert whole.choices[0].logprobs.content


# ---- headers ----


def test_every_answer_has_an_id_and_what_it_cost(client):
    answer = client.chat.completions.with_raw_response.create(model=MODEL, messages=SAY_HI, max_tokens=2)
    assert answer.headers["x-request-id"] == answer.parse()._request_id
    assert answer.headers["x-generated-tokens"] == "2"


def test_an_id_of_the_clients_own_comes_back(client):
    mine = {"x-request-id": "my-own-id-7"}
    answer = client.completions.with_raw_response.create(model=MODEL, prompt=FRANCE, max_tokens=1, extra_headers=mine)
    assert answer.headers["x-request-id"] == "my-own-id-7"


# ---- errors ----


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_bad_field_is_an_unprocessable_entity_that_says_which(chat, complete, stream):
    for ask in (chat, complete):
        with pytest.raises(openai.UnprocessableEntityError, match="tokens") as caught:
            ask(max_tokens=TOO_MANY, stream=stream)
        assert caught.value.param == "max_tokens"
        assert caught.value.code == "context_length_exceeded"
        assert caught.value.type == "invalid_request_error"
        assert caught.value.request_id


def test_a_field_of_the_wrong_type_is_an_unprocessable_entity_that_says_which(chat):
    with pytest.raises(openai.UnprocessableEntityError, match="temperature") as caught:
        chat(temperature="hot")
    assert caught.value.param == "temperature"


def test_a_suffix_is_refused(complete):
    with pytest.raises(openai.UnprocessableEntityError, match="suffix"):
        complete(suffix="!")


def test_a_route_that_is_not_there_is_not_found(client):
    with pytest.raises(openai.NotFoundError, match="no route"):
        client.embeddings.create(model=MODEL, input="x", encoding_format="float")


def test_a_route_that_takes_another_method_says_so(client):
    with pytest.raises(openai.APIStatusError, match="GET") as caught:
        client.get("/chat/completions", cast_to=object)
    assert caught.value.status_code == 405


def test_the_key_opens_a_locked_server(locked_url):
    answer = connect(locked_url, KEY).completions.create(model=MODEL, prompt=FRANCE, max_tokens=2)
    assert answer.usage.completion_tokens == 2


def test_without_the_right_key_it_is_an_authentication_error(locked_url):
    with pytest.raises(openai.AuthenticationError, match="key"):
        connect(locked_url, "wrong").chat.completions.create(model=MODEL, messages=SAY_HI)


def test_a_second_request_of_a_busy_server_is_a_rate_limit_error(busy_url):
    client = connect(busy_url, strict=False)
    with client.completions.create(model=MODEL, prompt=FRANCE, max_tokens=500, stream=True) as first:
        next(iter(first))
        with pytest.raises(openai.RateLimitError, match="overloaded") as caught:
            client.chat.completions.create(model=MODEL, messages=SAY_HI)
    assert int(caught.value.response.headers["retry-after"]) >= 1


# ---- async ----


def test_async_chats_and_streams_at_once_equal_those_one_by_one(async_client, chat):
    ask = async_client.chat.completions.create
    greedy = {"model": MODEL, "messages": SAY_HI, "max_tokens": 4, "temperature": 0}

    async def whole():
        return (await ask(**greedy)).choices[0].message.content

    async def stream():
        return "".join([chunk.choices[0].delta.content or "" async for chunk in await ask(stream=True, **greedy)])

    async def all_at_once():
        return await asyncio.gather(whole(), stream(), whole(), stream())

    assert asyncio.run(all_at_once()) == [chat().choices[0].message.content] * 4


def test_an_async_error_is_the_same_exception(async_client):
    async def ask():
        await async_client.completions.create(model=MODEL, prompt=FRANCE, max_tokens=TOO_MANY)

    with pytest.raises(openai.UnprocessableEntityError, match="tokens"):
        asyncio.run(ask())
