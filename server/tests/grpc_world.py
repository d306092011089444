"""A real grpc.aio server on a Unix socket, and a client that speaks the contract."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from shard_world import BLOCK_SIZE, load

from headrace_server.flags import parse_serve
from headrace_server.model_thread import ModelThread
from headrace_server.pb import shard_pb2 as pb
from headrace_server.pb.shard_pb2_grpc import ShardStub, add_ShardServicer_to_server
from headrace_server.runner import Runner
from headrace_server.serve import options_for
from headrace_server.service import ShardService

NUM_BLOCKS = 64


def packed(*numbers: int, dtype: str = "<u4") -> bytes:
    return np.array(numbers, dtype).tobytes()


def unpacked(data: bytes, dtype: str = "<u4") -> list[Any]:
    return np.frombuffer(data, dtype).tolist()


def new_row(row: int, tokens: list[int], *, epoch: int = 1, **sampling: Any) -> pb.NewRow:
    return pb.NewRow(row=row, epoch=epoch, token_ids=packed(*tokens), sampling=pb.Sampling(**sampling))


def tables(*blocks: list[int]) -> pb.BlockTables:
    return pb.BlockTables(
        lengths=packed(*(len(table) for table in blocks)),
        blocks=packed(*(block for table in blocks for block in table)),
    )


class Session:
    """The three streams of one session, and the sequence numbers of their messages."""

    def __init__(self, stub: ShardStub, number: int) -> None:
        metadata = (("headrace-session", str(number)),)
        self.prefill = stub.Prefill(metadata=metadata)
        self.decode = stub.Decode(metadata=metadata)
        self.filter = stub.Filter(metadata=metadata)
        self.sequence = 0
        self.step = 0

    async def opened(self) -> "Session":
        """Wait until the shard has greeted all three streams."""
        for stream in (self.prefill, self.decode, self.filter):
            await stream.initial_metadata()
        return self

    def close(self) -> None:
        """As if the router had died."""
        for stream in (self.prefill, self.decode, self.filter):
            stream.cancel()

    def prefill_step(self, new: list[pb.NewRow], chunks: dict[int, int], blocks: list[list[int]], **more: Any) -> Any:
        return pb.PrefillStep(
            **self._numbers(),
            new_rows=new,
            chunk_rows=packed(*chunks),
            chunk_tokens=packed(*chunks.values()),
            tables=tables(*blocks),
            **more,
        )

    def decode_step(self, rows: list[int], blocks: list[list[int]]) -> Any:
        return pb.DecodeStep(**self._numbers(), decode_rows=packed(*rows), tables=tables(*blocks))

    def filter_rows(self, *pairs: tuple[int, int]) -> Any:
        self.sequence += 1
        rows, epochs = [row for row, _ in pairs], [epoch for _, epoch in pairs]
        return pb.FilterRows(sequence=self.sequence, rows=packed(*rows), epochs=packed(*epochs, dtype="<u8"))

    def _numbers(self) -> dict[str, int]:
        self.sequence += 1
        self.step += 1
        return {"sequence": self.sequence, "step": self.step}


async def ask(stream: Any, message: Any) -> Any:
    """Send one message and read its answer."""
    await stream.write(message)
    return await stream.read()


class Shard:
    """A served model: its stub; its Runner, for tests that hold a step up; its service, for those that end it."""

    def __init__(self, address: str, stub: ShardStub, runner: Runner, service: ShardService) -> None:
        self.address = address
        self.stub = stub
        self.runner = runner
        self.service = service
        self._sessions = 0

    async def session(self, number: int | None = None) -> Session:
        self._sessions += 1
        return await Session(self.stub, number or self._sessions).opened()

    async def warm_up(self, **limits: Any) -> pb.WarmupResponse:
        asked = {"max_batch_size": 8, "max_batch_prefill_tokens": 32, "num_blocks": NUM_BLOCKS, **limits}
        return await self.stub.Warmup(pb.WarmupRequest(**asked))


@asynccontextmanager
async def serving(
    model_dir: Path, socket_dir: Path, *, warm: bool = True, address: str | None = None
) -> AsyncIterator[Shard]:
    """On a Unix socket, or at `address`, whose port may be 0."""
    address = address or f"unix:{socket_dir / 'shard.sock'}"
    flags = parse_serve(["--model-dir", str(model_dir), "--uds-path", str(socket_dir / "shard.sock")])
    model = ModelThread()
    loaded = model.submit(lambda: load(model_dir))
    server = grpc.aio.server(options=options_for(address))
    service = ShardService(flags, model, loaded)
    add_ShardServicer_to_server(service, server)
    port = server.add_insecure_port(address)
    if not address.startswith("unix:"):
        address = f"{address.rpartition(':')[0]}:{port}"
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            shard = Shard(address, ShardStub(channel), await loaded, service)
            if warm:
                await shard.warm_up()
            yield shard
    finally:
        await server.stop(None)


def run(scenario: Any) -> None:
    """Run a coroutine; one that hangs is a failure."""
    asyncio.run(asyncio.wait_for(scenario, 60))


__all__ = ["BLOCK_SIZE", "NUM_BLOCKS", "Session", "Shard", "ask", "new_row", "packed", "run", "serving", "unpacked"]
