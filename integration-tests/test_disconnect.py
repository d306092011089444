"""Clients that leave give everything back, and nobody else notices."""

import asyncio
import json
import random

import aiohttp

from harness.reference import Reference
from harness.server import Server

TOKENS = 40


async def stream(session: aiohttp.ClientSession, server: Server, prompt: str, leave_after: float | None) -> list[int]:
    """Token ids of a streamed answer; leaves after that many seconds, if any."""
    ids: list[int] = []
    body = {"inputs": prompt, "parameters": {"max_new_tokens": TOKENS, "ignore_eos_token": True}}

    async def read() -> None:
        async with session.post(f"{server.url}/generate_stream", json=body) as answer:
            assert answer.status == 200, await answer.text()
            async for line in answer.content:
                if line.startswith(b"data:"):
                    event = json.loads(line[5:])
                    assert "error" not in event, event
                    ids.append(event["token"]["id"])

    try:
        await asyncio.wait_for(read(), leave_after)
    except TimeoutError:
        assert leave_after is not None
    return ids


async def two_hundred(server: Server, prompts: list[str]) -> list[tuple[str, bool, list[int]]]:
    """(prompt, stayed, ids) of 200 requests, 64 at a time, 30 % of which leave at a random moment."""
    draw = random.Random(11)
    plans = [(draw.choice(prompts), draw.uniform(0, 3) if draw.random() < 0.3 else None) for _ in range(200)]
    gate = asyncio.Semaphore(64)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=600)) as session:

        async def one(prompt: str, leave_after: float | None) -> tuple[str, bool, list[int]]:
            async with gate:
                return prompt, leave_after is None, await stream(session, server, prompt, leave_after)

        return await asyncio.gather(*(one(*plan) for plan in plans))


def test_two_hundred_requests_of_which_a_third_leave(server: Server, reference: Reference) -> None:
    prompts = [f"The number {n} is known for" for n in range(8)]
    expected = reference.greedy_many(prompts, TOKENS)
    answers = asyncio.run(two_hundred(server, prompts))
    stayed = [(prompt, ids) for prompt, stayed, ids in answers if stayed]
    assert 100 < len(stayed) < 180
    wrong = [(prompt, ids) for prompt, ids in stayed if ids != expected[prompt]]
    assert wrong == []
    server.wait_until_idle()
    assert server.metric("headrace_running_requests") == 0


def test_a_client_of_generate_that_leaves_cancels_too(server: Server) -> None:
    async def leave() -> None:
        body = {"inputs": "Once", "parameters": {"max_new_tokens": 4000, "ignore_eos_token": True}}
        async with aiohttp.ClientSession() as session:
            try:
                await asyncio.wait_for(session.post(f"{server.url}/generate", json=body), 1)
            except TimeoutError:
                return
            raise AssertionError("4,000 tokens in a second?")

    asyncio.run(leave())
    server.wait_until_idle(limit=5)
