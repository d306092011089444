"""The protocol, on a real server: three streams are one session, one order, one fate."""

import asyncio
import hashlib
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_world import NUM_BLOCKS, Session, Shard, ask, new_row, run, serving, unpacked
from tiny_models import TinyModel

from headrace_server.pb import shard_pb2 as pb
from headrace_server.session import MAX_UNANSWERED

PROMPT = [5, 6, 7, 8, 9]
BLOCKS = [3, 1, 2]


def first_step(session: Session, row: int = 0, blocks: list[int] | None = None, **sampling: Any) -> Any:
    return session.prefill_step([new_row(row, PROMPT, **sampling)], {row: len(PROMPT)}, [blocks or BLOCKS])


async def ended(stream: Any) -> grpc.aio.AioRpcError:
    """Read until the stream fails; its error."""
    try:
        while await stream.read() is not grpc.aio.EOF:
            pass
        await stream.code()
        assert await stream.code() != grpc.StatusCode.OK, "the stream ended well"
        return grpc.aio.AioRpcError(await stream.code(), None, None, await stream.details())
    except grpc.aio.AioRpcError as error:
        return error


class Gate:
    """Holds the model thread up inside its next steps until opened."""

    def __init__(self, shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.executed: list[Any] = []
        self._open = threading.Event()
        execute = shard.runner.launch

        def gated(step: Any) -> Any:
            self.entered.set()
            assert self._open.wait(60)
            self.executed.append(step)
            return execute(step)

        monkeypatch.setattr(shard.runner, "launch", gated)

    async def held(self) -> None:
        await asyncio.to_thread(self.entered.wait, 60)

    def open(self) -> None:
        self._open.set()


def test_a_request_is_answered_over_prefill_and_decode(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            session = await shard.session()
            answers = [await ask(session.prefill, first_step(session))]
            for _ in range(7):
                answers.append(await ask(session.decode, session.decode_step([0], [BLOCKS])))
            assert [answer.error for answer in answers] == [""] * 8
            assert [unpacked(answer.token_ids)[0] for answer in answers] == tiny_llama.greedy(PROMPT, 8)
            assert [answer.sequence for answer in answers] == list(range(1, 9))
            assert all(answer.timing.forward_us > 0 for answer in answers)

    run(scenario())


def test_two_steps_in_flight_need_no_token_on_the_wire(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            session = await shard.session()
            await session.prefill.write(first_step(session))
            for _ in range(7):
                await session.decode.write(session.decode_step([0], [BLOCKS]))
            tokens = unpacked((await session.prefill.read()).token_ids)
            for _ in range(7):
                tokens += unpacked((await session.decode.read()).token_ids)
            assert tokens == tiny_llama.greedy(PROMPT, 8)

    run(scenario())


def test_messages_execute_by_sequence_whichever_stream_is_first(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            session = await shard.session()
            prefill, decode, leave = (
                first_step(session),
                session.decode_step([0], [BLOCKS]),
                session.filter_rows((0, 1)),
            )
            late = session.decode_step([0], [BLOCKS])
            await session.filter.write(leave)
            await session.decode.write(decode)
            await session.decode.write(late)
            health = await shard.stub.Health(pb.HealthRequest())
            while health.inbox_depth < 3:
                health = await shard.stub.Health(pb.HealthRequest())
            await session.prefill.write(prefill)
            expected = tiny_llama.greedy(PROMPT, 2)
            assert unpacked((await session.prefill.read()).token_ids) == expected[:1]
            assert unpacked((await session.decode.read()).token_ids) == expected[1:]
            assert (await session.filter.read()).sequence == 3
            gone = await session.decode.read()
            assert gone.row_errors[0].message == "row 0 decodes, but no request holds it"

    run(scenario())


def test_a_late_filter_of_an_earlier_epoch_is_no_harm(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            session = await shard.session()
            await ask(session.prefill, first_step(session))
            again = session.prefill_step([new_row(0, PROMPT, epoch=2)], {0: len(PROMPT)}, [[9, 10]])
            first = await ask(session.prefill, again)
            assert (await ask(session.filter, session.filter_rows((0, 1), (7, 1), (4000000000, 1)))).sequence == 3
            second = await ask(session.decode, session.decode_step([0], [[9, 10]]))
            tokens = unpacked(first.token_ids) + unpacked(second.token_ids)
            assert tokens == tiny_llama.greedy(PROMPT, 2)
            assert (await ask(session.filter, session.filter_rows((0, 2)))).sequence == 5
            gone = await ask(session.decode, session.decode_step([0], [[9, 10]]))
            assert [error.row for error in gone.row_errors] == [0]

    run(scenario())


@pytest.mark.parametrize("broken", ["prefill", "decode", "filter"])
def test_when_one_stream_breaks_the_other_two_end(broken: str, tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            session = await shard.session()
            getattr(session, broken).cancel()
            for name in {"prefill", "decode", "filter"} - {broken}:
                error = await ended(getattr(session, name))
                assert error.code() is grpc.StatusCode.ABORTED
                assert f"the {broken.capitalize()} stream ended" in (error.details() or "")

    run(scenario())


def test_a_session_starts_clean(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            old = await shard.session()
            await ask(old.prefill, first_step(old))
            old.close()
            new = await shard.session()
            orphan = await ask(new.decode, new.decode_step([0], [BLOCKS]))
            assert orphan.row_errors[0].message == "row 0 decodes, but no request holds it"
            answer = await ask(new.prefill, first_step(new))
            assert unpacked(answer.token_ids) == tiny_llama.greedy(PROMPT, 1)

    run(scenario())


def test_a_stream_that_names_an_ended_session_is_refused(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            (await shard.session(7)).close()
            await shard.session(8)
            error = await ended(shard.stub.Prefill(metadata=(("headrace-session", "7"),)))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert error.details() == "session 7 has ended; open a new one"

    run(scenario())


def test_a_second_router_is_refused_and_the_first_goes_on(
    tiny_llama: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_server.session.PREDECESSOR_SECONDS", 0.01)

    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            first = await shard.session(7)
            tokens = unpacked((await ask(first.prefill, first_step(first))).token_ids)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await shard.warm_up()
            error = await ended(shard.stub.Prefill(metadata=(("headrace-session", "8"),)))
            for refusal in (refused.value, error):
                assert refusal.code() is grpc.StatusCode.FAILED_PRECONDITION
                assert re.fullmatch(
                    r"it serves another router since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC; stop that one first, "
                    r"or start ranks for this one",
                    refusal.details() or "",
                )
            tokens += unpacked((await ask(first.decode, first.decode_step([0], [BLOCKS]))).token_ids)
            assert tokens == tiny_llama.greedy(PROMPT, 2)

    run(scenario())


def test_no_stream_of_a_second_session_opens_while_the_first_goes_on(
    tiny_llama: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two routers that come at once the one that rank 0 refuses must not have gone on to other ranks."""
    monkeypatch.setattr("headrace_server.session.PREDECESSOR_SECONDS", 60.0)

    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            first = await shard.session(7)
            second = asyncio.create_task(shard.session(8))
            for _ in range(3):  # an answer to the second session's streams would have come before the last of these
                await shard.stub.Health(pb.HealthRequest())
            assert not second.done()
            first.close()
            session = await second
            answer = await ask(session.prefill, first_step(session))
            assert unpacked(answer.token_ids) == tiny_llama.greedy(PROMPT, 1)

    run(scenario())


def test_a_router_that_comes_while_its_predecessor_leaves_is_served(
    tiny_llama: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_server.session.PREDECESSOR_SECONDS", 60.0)

    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            old = await shard.session()
            warm_up = asyncio.create_task(shard.warm_up())
            for _ in range(2):  # after the first Warmup has been sent, after the second it has been read
                await shard.stub.Health(pb.HealthRequest())
            old.close()
            await warm_up
            session = await shard.session()
            answer = await ask(session.prefill, first_step(session))
            assert unpacked(answer.token_ids) == tiny_llama.greedy(PROMPT, 1)

    run(scenario())


def test_a_session_that_would_begin_when_the_shard_ends_is_told_why(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            stream = shard.stub.Prefill(metadata=(("headrace-session", "1"),))
            shard.service.end("the shard ends")
            error = await ended(stream)
            assert error.code() is grpc.StatusCode.ABORTED
            assert error.details() == "session 1 ended: the shard ends"

    run(scenario())


def test_nothing_of_an_older_session_is_applied(
    tiny_llama: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its second step is in the inbox when the new session begins; the row must stay unknown."""

    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            gate = Gate(shard, monkeypatch)
            old = await shard.session()
            await old.prefill.write(first_step(old))
            await old.prefill.write(first_step(old, row=1, blocks=[20, 21]))
            await gate.held()
            while (await shard.stub.Health(pb.HealthRequest())).inbox_depth < 2:
                pass
            old.close()
            new = await shard.session()
            gate.open()
            answer = await ask(new.decode, new.decode_step([0, 1], [BLOCKS, [20, 21]]))
            assert [error.row for error in answer.row_errors] == [0, 1]
            assert len(gate.executed) == 2  # the old session's first step, which ran already, and the new one's

    run(scenario())


def test_health_is_answered_while_a_step_runs(
    tiny_llama: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            gate = Gate(shard, monkeypatch)
            session = await shard.session()
            await session.prefill.write(first_step(session))
            await session.decode.write(session.decode_step([0], [BLOCKS]))
            await gate.held()
            health = await shard.stub.Health(pb.HealthRequest())
            while health.inbox_depth < 2:
                health = await shard.stub.Health(pb.HealthRequest())
            gate.open()
            await session.prefill.read()
            waited = await session.decode.read()
            assert waited.timing.inbox_us > 0

    run(scenario())


def test_a_sequence_number_that_comes_twice_ends_the_session(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            session = await shard.session()
            message = first_step(session)
            await ask(session.prefill, message)
            await session.prefill.write(message)
            assert "sequence 1 came twice" in ((await ended(session.decode)).details() or "")

    run(scenario())


def test_a_flood_behind_a_missing_message_ends_the_session(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            session = await shard.session()
            session.sequence = 1  # number 1 never comes
            for _ in range(MAX_UNANSWERED + 1):
                await session.filter.write(session.filter_rows((0, 1)))
            details = (await ended(session.prefill)).details() or ""
            assert f"{MAX_UNANSWERED} messages are unanswered" in details

    run(scenario())


def test_a_message_that_cannot_be_read_fails_its_step_and_every_row_held(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            session = await shard.session()
            await ask(session.prefill, first_step(session))
            torn = session.decode_step([0], [BLOCKS])
            torn.decode_rows = b"\0\0\0"
            answer = await ask(session.decode, torn)
            assert answer.error == "decode_rows has 3 bytes, which is no multiple of 4"
            after = await ask(session.decode, session.decode_step([0], [BLOCKS]))
            assert "could not be read" in after.row_errors[0].message
            healed = await ask(session.prefill, first_step(session, epoch=2))
            assert unpacked(healed.token_ids) == tiny_llama.greedy(PROMPT, 1)

    run(scenario())


@pytest.mark.parametrize("metadata", [(), (("headrace-session", "x"),)], ids=["absent", "no number"])
def test_a_stream_without_a_session_is_refused(metadata: Any, tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            error = await ended(shard.stub.Decode(metadata=metadata))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "headrace-session" in (error.details() or "")

    run(scenario())


def test_streams_before_warmup_are_refused(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path, warm=False) as shard:
            error = await ended((await shard.session()).prefill)
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert "call Warmup first" in (error.details() or "")

    run(scenario())


def test_info_and_warmup_say_what_was_agreed(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path, warm=False) as shard:
            info = await shard.stub.Info(pb.InfoRequest())
            assert (info.model_type, info.dtype, info.device) == ("llama", "float32", "cpu")
            assert (info.vocab_size, info.max_positions, info.block_size) == (97, 256, 16)
            assert info.kv_bytes_per_token == 2 * 3 * 2 * 16 * 4
            assert info.tokenizer_sha256 == "", "the tiny model has none"
            pool = await shard.warm_up()
            assert pool.num_blocks == NUM_BLOCKS
            assert pool.pool_bytes == NUM_BLOCKS * 16 * info.kv_bytes_per_token
            assert pool.available_bytes > pool.pool_bytes
            largest = await shard.stub.Warmup(pb.WarmupRequest(max_batch_size=3, max_batch_prefill_tokens=32))
            assert largest.num_blocks == 3 * 256 // 16

    run(scenario())


def test_info_says_which_tokenizer_lies_beside_the_weights(tiny_llama: TinyModel, tmp_path: Path) -> None:
    model_dir = tmp_path / "model"
    shutil.copytree(tiny_llama.directory, model_dir)
    (model_dir / "tokenizer.json").write_bytes(b"any bytes")

    async def scenario() -> None:
        async with serving(model_dir, tmp_path, warm=False) as shard:
            info = await shard.stub.Info(pb.InfoRequest())
            assert info.tokenizer_sha256 == hashlib.sha256(b"any bytes").hexdigest()

    run(scenario())


@pytest.mark.parametrize(
    ("limits", "code", "message"),
    [
        ({"num_blocks": 2**31}, grpc.StatusCode.FAILED_PRECONDITION, r"2147483648 blocks needs \d+ MiB, but only \d+"),
        ({"num_blocks": 1, "max_total_tokens": 17}, grpc.StatusCode.FAILED_PRECONDITION, "holds 16 tokens, fewer than"),
        ({"max_total_tokens": 257}, grpc.StatusCode.FAILED_PRECONDITION, "257 exceeds the 256 positions"),
        ({"max_batch_size": 0}, grpc.StatusCode.INVALID_ARGUMENT, "must be at least 1"),
    ],
    ids=["memory", "pool", "positions", "rows"],
)
def test_a_pool_that_does_not_fit_is_an_error_with_both_numbers(
    limits: dict[str, int], code: grpc.StatusCode, message: str, tiny_llama: TinyModel, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path, warm=False) as shard:
            with pytest.raises(grpc.aio.AioRpcError, match=message) as error:
                await shard.warm_up(**limits)
            assert error.value.code() is code

    run(scenario())


def test_closing_a_stream_ends_the_session_after_its_answers(tiny_llama: TinyModel, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tiny_llama.directory, tmp_path) as shard:
            session = await shard.session()
            await session.prefill.write(first_step(session))
            await session.prefill.done_writing()
            assert unpacked((await session.prefill.read()).token_ids) == tiny_llama.greedy(PROMPT, 1)
            assert await session.prefill.read() is grpc.aio.EOF
            assert "the Prefill stream ended" in ((await ended(session.decode)).details() or "")

    run(scenario())
