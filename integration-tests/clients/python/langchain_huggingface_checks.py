"""`langchain-huggingface`: HuggingFaceEndpoint and ChatHuggingFace with the server's address as `endpoint_url`."""

import asyncio

import pytest
from huggingface_hub.errors import HfHubHTTPError, ValidationError
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_huggingface import ChatHuggingFace, HuggingFaceEndpoint

from conftest import curl

FRANCE = "The capital of France is"
# The defaults of HuggingFaceEndpoint sample; these don't.
GREEDY = {"temperature": None, "top_p": None, "typical_p": None, "timeout": 60}
MESSAGES = [SystemMessage("You are terse."), HumanMessage("Say hi.")]


@pytest.fixture
def complete(url: str):
    return lambda **more: HuggingFaceEndpoint(endpoint_url=url, **{**GREEDY, "max_new_tokens": 4, **more})


@pytest.fixture
def chat(url: str):
    def chat(**more):
        endpoint = HuggingFaceEndpoint(endpoint_url=url, **{**GREEDY, "max_new_tokens": 4, **more})
        # Its own default, 0.8, would sample.
        return ChatHuggingFace(llm=endpoint, temperature=0.0)

    return chat


@pytest.fixture
def expected(url: str) -> str:
    return curl(f"{url}/generate", {"inputs": FRANCE, "parameters": {"max_new_tokens": 4}})["generated_text"]


# ---- HuggingFaceEndpoint ----


def test_an_endpoint_is_invoked(complete, expected):
    assert complete().invoke(FRANCE) == expected


def test_an_endpoint_is_streamed(complete, expected):
    assert "".join(complete().stream(FRANCE)) == expected
    assert complete(streaming=True).invoke(FRANCE) == expected


def test_an_endpoint_with_its_defaults_samples(url):
    assert HuggingFaceEndpoint(endpoint_url=url, max_new_tokens=2, seed=7).invoke(FRANCE)


def test_an_endpoint_takes_every_option_at_once(complete):
    options = {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "typical_p": 0.95, "seed": 7, "repetition_penalty": 1.1}
    more = {"do_sample": True, "truncate": 4, "watermark": False, "return_full_text": True, "stop_sequences": ["\n\n"]}
    assert complete(**options, **more).invoke(FRANCE).startswith(FRANCE)


def test_an_endpoint_ends_at_its_stop_word(complete):
    colours = complete(max_new_tokens=20)
    prompt = "Write a list of three colours:\n1."
    assert "\n" not in colours.invoke(prompt, stop=["\n"])
    assert "\n" not in "".join(colours.stream(prompt, stop=["\n"]))


def test_an_endpoint_works_async(complete, expected):
    async def both():
        return await complete().ainvoke(FRANCE), "".join([text async for text in complete().astream(FRANCE)])

    assert asyncio.run(both()) == (expected, expected)


def test_a_bad_field_is_a_validation_error(complete):
    with pytest.raises(ValidationError, match="max_new_tokens"):
        complete(max_new_tokens=100_000).invoke(FRANCE)


# ---- ChatHuggingFace ----


def test_a_chat_is_invoked(chat):
    answer = chat().invoke(MESSAGES)
    assert answer.content
    assert answer.response_metadata["finish_reason"] == "length"
    assert answer.usage_metadata["output_tokens"] == 4


def test_a_chat_stream_adds_up_to_the_whole_answer(chat):
    chunks = list(chat().stream(MESSAGES))
    whole = sum(chunks[1:], chunks[0])
    assert whole.content == chat().invoke(MESSAGES).content
    assert whole.response_metadata["finish_reason"] == "length"


def test_a_chat_ends_at_its_stop_word(chat):
    answer = chat(max_new_tokens=40).invoke("Say hi.", stop=["!"])
    assert "!" not in answer.content


def test_a_chat_works_async(chat):
    async def both():
        whole = await chat().ainvoke(MESSAGES)
        return whole.content, "".join([chunk.content async for chunk in chat().astream(MESSAGES)])

    whole, streamed = asyncio.run(both())
    assert whole == streamed == chat().invoke(MESSAGES).content


def test_a_bad_chat_is_an_http_error(chat):
    with pytest.raises(HfHubHTTPError, match="max_tokens"):
        chat(max_new_tokens=100_000).invoke(MESSAGES)
