"""`langchain-openai`: ChatOpenAI and OpenAI, pointed at the server by `base_url`."""

import asyncio

import openai
import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI

from conftest import curl

FRANCE = "The capital of France is"
GREEDY = {"model": "tgi", "api_key": "unused", "temperature": 0, "max_retries": 0, "timeout": 60}


@pytest.fixture
def chat(url: str):
    return lambda **more: ChatOpenAI(base_url=f"{url}/v1", **{**GREEDY, "max_tokens": 4, **more})


@pytest.fixture
def complete(url: str):
    return lambda **more: OpenAI(base_url=f"{url}/v1", **{**GREEDY, "max_tokens": 4, **more})


def test_a_chat_is_invoked(chat):
    answer = chat().invoke([SystemMessage("You are terse."), HumanMessage("Say hi.")])
    assert answer.content
    assert answer.response_metadata["finish_reason"] == "length"
    assert answer.usage_metadata["output_tokens"] == 4
    assert answer.id


def test_a_chat_stream_adds_up_to_the_whole_answer_and_its_usage(chat):
    chunks = list(chat(stream_usage=True).stream("Say hi."))
    whole = sum(chunks[1:], chunks[0])
    assert isinstance(whole, AIMessageChunk)
    assert whole.content == chat().invoke("Say hi.").content
    assert whole.response_metadata["finish_reason"] == "length"
    assert whole.usage_metadata["output_tokens"] == 4


def test_a_chain_ends_at_its_stop_word(chat):
    chain = ChatPromptTemplate.from_messages([("user", "Say {what}.")]) | chat(max_tokens=40).bind(stop=["!"])
    answer = chain.invoke({"what": "hi"})
    assert answer.response_metadata["finish_reason"] == "stop"
    assert "!" not in answer.content


def test_log_probabilities_of_a_chat(chat):
    logprobs = chat(logprobs=True, top_logprobs=2).invoke("Say hi.").response_metadata["logprobs"]
    assert [len(token["top_logprobs"]) for token in logprobs["content"]] == [2, 2, 2, 2]


def test_two_answers_to_one_chat(chat):
    result = chat(n=2, temperature=1, seed=3).generate([[HumanMessage("Say hi.")]])
    assert len(result.generations[0]) == 2
    assert result.llm_output["token_usage"]["completion_tokens"] <= 8


def test_chats_in_a_batch_and_async_equal_those_one_by_one(chat):
    questions = ["Say hi.", "Say no."]
    one_by_one = [chat().invoke(question).content for question in questions]
    assert [answer.content for answer in chat().batch(questions)] == one_by_one

    async def batch_and_stream():
        batch = await chat().abatch(questions)
        return [answer.content for answer in batch], [chunk.content async for chunk in chat().astream(questions[0])]

    batch, stream = asyncio.run(batch_and_stream())
    assert batch == one_by_one
    assert "".join(stream) == one_by_one[0]


def test_a_bad_chat_raises_openais_exception(chat):
    with pytest.raises(openai.UnprocessableEntityError, match="tokens"):
        chat(max_tokens=100_000).invoke("Say hi.")


def test_a_completion_is_invoked_and_streamed(complete, url):
    expected = curl(f"{url}/generate", {"inputs": FRANCE, "parameters": {"max_new_tokens": 4}})["generated_text"]
    assert complete().invoke(FRANCE) == expected
    assert "".join(complete().stream(FRANCE)) == expected


def test_a_batch_of_completions_is_one_request_with_a_list_of_prompts(complete):
    prompts = [FRANCE, "Once upon a time"]
    result = complete().generate(prompts)
    assert [answers[0].text for answers in result.generations] == [complete().invoke(prompt) for prompt in prompts]
    assert result.llm_output["token_usage"]["completion_tokens"] == 8


def test_a_completion_ends_at_its_stop_word(complete):
    assert "\n" not in complete(max_tokens=20).invoke("Write a list of three colours:\n1.", stop=["\n"])
