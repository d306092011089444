"""A router on another machine may be gone without a word. Its session ends, and the next router is served."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_world import Session, ask, new_row, run, serving, unpacked
from tiny_models import TinyModel

from headrace_server import serve
from headrace_server.pb import shard_pb2 as pb
from headrace_server.pb.shard_pb2_grpc import ShardStub

PROMPT = [5, 6, 7, 8, 9]
BLOCKS = [3, 1, 2]
PING_ANSWER = b"\x00\x00\x08\x06\x01"  # how such a frame of HTTP/2 begins: eight bytes, a ping, an answer


def ask_often(monkeypatch: pytest.MonkeyPatch, patience: int) -> None:
    """Whether the router is there, ten times a second, and wait `patience` ms for its answer."""
    changed = tuple((name, 100 if name == "grpc.keepalive_time_ms" else patience) for name, _ in serve.REMOTE)
    monkeypatch.setattr(serve, "REMOTE", changed)


class Way:
    """Between a router and a shard. When it is cut, neither end hears of it."""

    def __init__(self) -> None:
        self.address = ""
        self.pings_answered: asyncio.Queue[None] = asyncio.Queue()  # one for each
        self._whole = asyncio.Event()
        self._whole.set()

    def cut(self) -> None:
        """Whatever is sent from now on arrives nowhere."""
        self._whole.clear()

    async def carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._whole.wait()
                target.write(data)
                if data.startswith(PING_ANSWER):
                    self.pings_answered.put_nowait(None)
        finally:
            target.close()


@asynccontextmanager
async def way_to(address: str) -> AsyncIterator[Way]:
    way, carriers = Way(), set[asyncio.Task[None]]()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = address.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        for source, target in ((reader, far_writer), (far_reader, writer)):
            carriers.add(asyncio.create_task(way.carry(source, target)))

    listener = await asyncio.start_server(connect, "127.0.0.1", 0)
    way.address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield way
    finally:
        listener.close()
        for carrier in carriers:
            carrier.cancel()
        await asyncio.wait(carriers)


def first_step(session: Session) -> pb.PrefillStep:
    step: pb.PrefillStep = session.prefill_step([new_row(0, PROMPT)], {0: len(PROMPT)}, [BLOCKS])
    return step


def test_the_next_router_is_served_when_the_first_ones_machine_has_vanished(
    tiny_llama: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_often(monkeypatch, patience=2000)
    monkeypatch.setattr("headrace_server.session.PREDECESSOR_SECONDS", 0.01)

    async def scenario() -> None:
        async with (
            serving(tiny_llama.directory, tmp_path, address="127.0.0.1:0") as shard,
            way_to(shard.address) as way,
            grpc.aio.insecure_channel(way.address) as channel,
        ):
            first = await Session(ShardStub(channel), 7).opened()
            await ask(first.prefill, first_step(first))
            with pytest.raises(grpc.aio.AioRpcError, match="it serves another router"):
                await shard.warm_up()
            way.cut()
            while True:
                try:
                    await shard.warm_up()
                    break
                except grpc.aio.AioRpcError as refused:
                    assert "it serves another router" in (refused.details() or "")
            second = await shard.session(8)
            answer = await ask(second.prefill, first_step(second))
            assert unpacked(answer.token_ids) == tiny_llama.greedy(PROMPT, 1)

    run(scenario())


def test_a_router_that_is_there_keeps_its_session_however_long_it_says_nothing(
    tiny_llama: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_often(monkeypatch, patience=20_000)

    async def scenario() -> None:
        async with (
            serving(tiny_llama.directory, tmp_path, address="127.0.0.1:0") as shard,
            way_to(shard.address) as way,
            grpc.aio.insecure_channel(way.address) as channel,
        ):
            session = await Session(ShardStub(channel), 7).opened()
            await ask(session.prefill, first_step(session))
            for _ in range(5):
                await way.pings_answered.get()
            answer = await ask(session.decode, session.decode_step([0], [BLOCKS]))
            assert unpacked(answer.token_ids) == tiny_llama.greedy(PROMPT, 2)[1:]

    run(scenario())


def test_a_router_on_this_machine_is_not_asked_whether_it_is_there() -> None:
    """Somebody may have stopped it to look at it."""
    probes = {name for name, _ in serve.REMOTE}
    assert probes & {name for name, _ in serve.options_for("unix:/run/shard")} == set()
    assert probes <= {name for name, _ in serve.options_for("127.0.0.1:7000")}
