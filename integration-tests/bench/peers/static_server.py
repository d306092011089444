"""A server around transformers' generate: requests that wait when a batch ends are the next batch.

A batch is padded on the left and runs until its longest answer is done; nobody joins it meanwhile. A request's tokens
are streamed as they come, and its answer ends with its own last one. Speaks as much of OpenAI's /v1/completions as
`headrace bench` asks for. Events carry text that stands for a token; nobody reads it.
"""

import argparse
import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import torch
from aiohttp import web
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.generation.streamers import BaseStreamer


@dataclass
class Waiting:
    """A request, and the queue that takes one item for each of its tokens."""

    prompt: str
    output_tokens: int
    tokens: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    prompt_tokens: int = 0


class Fan(BaseStreamer):
    """Hands each step's tokens to the rows that still want one. Called by the thread that generates."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rows: list[Waiting]) -> None:
        self._loop = loop
        self._rows = rows
        self._step = -1

    def put(self, value: torch.Tensor) -> None:
        """First the prompts, then [rows] token ids a step."""
        self._step += 1
        if self._step:
            self._loop.call_soon_threadsafe(self._hand_out, value.tolist(), self._step)

    def _hand_out(self, ids: list[int], step: int) -> None:
        for row, token in zip(self._rows, ids, strict=True):
            if step <= row.output_tokens:
                row.tokens.put_nowait(token)

    def end(self) -> None:
        """Every row counts its own tokens."""


class StaticBatches:
    """The one loop that computes."""

    def __init__(self, directory: str, group: int) -> None:
        self.queue: asyncio.Queue[Waiting] = asyncio.Queue()
        self._group = group
        self._tokenizer = AutoTokenizer.from_pretrained(directory, padding_side="left")
        self._tokenizer.pad_token = self._tokenizer.pad_token or self._tokenizer.eos_token
        self._model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).eval()
        # What a call leaves unset is taken from here, also an end-of-sequence token that it sets to None.
        self._model.generation_config.eos_token_id = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            rows = [await self.queue.get()]
            # Requests sent at once arrive one after another: let those in that are on their way.
            await asyncio.sleep(0.02)
            while len(rows) < self._group and not self.queue.empty():
                rows.append(self.queue.get_nowait())
            await loop.run_in_executor(None, self._generate, rows, Fan(loop, rows))

    @torch.inference_mode()
    def _generate(self, rows: list[Waiting], fan: Fan) -> None:
        given = self._tokenizer([row.prompt for row in rows], return_tensors="pt", padding=True)
        for row, count in zip(rows, given["attention_mask"].sum(1).tolist(), strict=True):
            row.prompt_tokens = count
        longest = max(row.output_tokens for row in rows)
        exactly = GenerationConfig(do_sample=False, max_new_tokens=longest, eos_token_id=None, pad_token_id=0)
        self._model.generate(**given, generation_config=exactly, streamer=fan)


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


async def completions(request: web.Request) -> web.StreamResponse:
    batches: StaticBatches = request.app["batches"]
    asked = await request.json()
    waiting = Waiting(asked["prompt"], asked["max_tokens"])
    batches.queue.put_nowait(waiting)
    answer = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await answer.prepare(request)
    for _ in range(waiting.output_tokens):
        token = await waiting.tokens.get()
        await answer.write(event({"choices": [{"index": 0, "text": f" {token}"}]}))
    usage = {"prompt_tokens": waiting.prompt_tokens, "completion_tokens": waiting.output_tokens}
    await answer.write(event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
    return answer


async def health(request: web.Request) -> web.Response:
    return web.Response()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="config.json, tokenizer.json and model.safetensors")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--group", type=int, required=True, help="most requests of a batch")
    args = parser.parse_args()
    app = web.Application()
    app["batches"] = batches = StaticBatches(args.directory, args.group)
    app.router.add_post("/v1/completions", completions)
    app.router.add_get("/health", health)

    async def start(app: web.Application) -> None:
        app["loop"] = asyncio.create_task(batches.run())

    app.on_startup.append(start)
    web.run_app(app, host="127.0.0.1", port=args.port, print=None)


if __name__ == "__main__":
    main()
