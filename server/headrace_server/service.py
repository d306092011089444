"""The gRPC service: translates messages and reports results. It decides nothing."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import grpc

from headrace_server import __version__, wire
from headrace_server.distributed.collective import Act
from headrace_server.errors import Closed, HeadraceError, Occupied, ProtocolError, one_line
from headrace_server.flags import ServeFlags
from headrace_server.log import LOGGER
from headrace_server.memory import Limits
from headrace_server.model_thread import Later, ModelThread
from headrace_server.pb import shard_pb2 as pb
from headrace_server.pb.shard_pb2_grpc import ShardServicer
from headrace_server.session import Session, Sessions, Work
from headrace_server.step import Filter, Step, StepResult
from headrace_server.streams import serve_stream
from headrace_server.tokenizer import sha256_of_tokenizer

SESSION_KEY = "headrace-session"


class ShardService(ShardServicer):
    """One shard. Answers Health at once; everything else waits until the model is loaded."""

    def __init__(self, flags: ServeFlags, model: ModelThread, loaded: asyncio.Future) -> None:
        """`loaded` gets the Runner."""
        self._flags = flags
        self._model = model
        self._loaded = loaded
        self._tokenizer_sha256 = sha256_of_tokenizer(flags.model_dir)
        self._warm = False
        self._warmups = 0
        self.asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # done with the first Info
        self._ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._sessions = Sessions(model, self._reset)

    async def Info(self, request: pb.InfoRequest, context: grpc.aio.ServicerContext) -> pb.InfoResponse:
        if not self.asked.done():
            self.asked.set_result(None)
        runner = await self._answer("Info", context, self._loaded)
        config, compute = runner.config, runner.compute
        return pb.InfoResponse(
            model_type=config.model_type,
            dtype=compute.dtype,
            device=compute.device,
            vocab_size=config.vocab_size,
            max_positions=config.max_positions,
            block_size=compute.block_size,
            kv_bytes_per_token=compute.kv_bytes_per_token,
            rank=self._flags.rank,
            world_size=self._flags.world_size,
            process_id=os.getpid(),
            version=__version__,
            tokenizer_sha256=self._tokenizer_sha256,
        )

    async def Warmup(self, request: pb.WarmupRequest, context: grpc.aio.ServicerContext) -> pb.WarmupResponse:
        from headrace_server.warmup import PoolReport, warm_up

        if not request.max_batch_size or not request.max_batch_prefill_tokens:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "max_batch_size and max_batch_prefill_tokens must be at least 1"
            )
        runner = await self._answer("Warmup", context, self._loaded)
        try:
            await self._sessions.free_for()
        except Occupied as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        self._warm = False
        limits = Limits(
            request.max_batch_size,
            request.max_batch_prefill_tokens,
            request.max_total_tokens,
            request.num_blocks if request.HasField("num_blocks") else None,
            request.host_bytes,
        )
        self._warmups += 1
        number = self._warmups

        def warm_up_together() -> PoolReport:
            if not runner.agree(Act.WARM_UP, *limits.numbers, wanted=lambda: self._warmups == number):
                raise ProtocolError("another Warmup came before all ranks had heard of this one")
            return warm_up(runner, limits)

        report = await self._answer("Warmup", context, self._model.submit(warm_up_together))
        self._warm = True
        self._model.when_quiet(runner.improve)
        return pb.WarmupResponse(
            num_blocks=report.num_blocks,
            pool_bytes=report.pool_bytes,
            available_bytes=report.available_bytes,
            step_us=report.step_us,
            host_blocks=report.host_blocks,
            swap_us=report.swap_us,
        )

    async def Health(self, request: pb.HealthRequest, context: grpc.aio.ServicerContext) -> pb.HealthResponse:
        # The message that runs counts as waiting: with it alone, a hung step would look like an idle shard.
        return pb.HealthResponse(
            idle_us=self._model.idle_us(),
            inbox_depth=self._sessions.unanswered(),
            waits_for_ranks=self._warm and self._loaded.result().waits_for_ranks,
        )

    async def Prefill(self, messages: AsyncIterator[pb.PrefillStep], context: grpc.aio.ServicerContext) -> None:
        await self._serve("Prefill", messages, partial(self._step, wire.parse_prefill), context)

    async def Decode(self, messages: AsyncIterator[pb.DecodeStep], context: grpc.aio.ServicerContext) -> None:
        await self._serve("Decode", messages, partial(self._step, wire.parse_decode), context)

    async def Filter(self, messages: AsyncIterator[pb.FilterRows], context: grpc.aio.ServicerContext) -> None:
        await self._serve("Filter", messages, self._filter, context)

    async def _serve(
        self,
        name: str,
        messages: AsyncIterator[Any],
        to_work: Callable[[Session, Any], Work],
        context: grpc.aio.ServicerContext,
    ) -> None:
        if not self._warm:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{name} needs a KV pool; call Warmup first")
        try:
            session = await self._sessions.join(_session_number(context), name)
        except Occupied as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except ProtocolError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Closed as error:
            await context.abort(grpc.StatusCode.ABORTED, str(error))
        await serve_stream(session, name, messages, partial(to_work, session), context)

    def _step(self, parse: Callable[[Any], Step], session: Session, message: Any) -> Work:
        """Parsed on arrival, while the step before it may still run; executed in its turn, by all ranks together."""
        runner = self._loaded.result()
        sequence = message.sequence
        try:
            step = parse(message)
        except ProtocolError as error:
            unreadable = StepResult(message.step, error=str(error))

            def refuse(waited_us: int) -> pb.StepResult:
                runner.fail_all(unreadable.number, str(unreadable.error))
                return wire.render_result(unreadable, sequence, waited_us)

            return refuse

        def execute(waited_us: int) -> Any:
            if not runner.agree(Act.STEP, session.number % 2**63, sequence, wanted=lambda: session.alive):
                return None
            launched_ns = time.monotonic_ns()
            land = runner.launch(step)

            def landed() -> pb.StepResult:
                result = land()
                # What it neither waited for us nor took, it waited for the step before it on the device.
                spent = (time.monotonic_ns() - launched_ns) // 1000
                behind = max(spent - result.forward_us - result.sampling_us, 0) if runner.compute.overlaps else 0
                return wire.render_result(result, sequence, waited_us + behind)

            return Later(landed)  # the next step need not wait for what is made of this one's results

        return execute

    def _filter(self, session: Session, message: pb.FilterRows) -> Work:
        runner = self._loaded.result()
        sequence = message.sequence
        ended: Filter = wire.parse_filter(message)  # unreadable: the session ends, for rows could be lost for ever

        def forget(waited_us: int) -> pb.FilterDone:
            runner.filter(ended)
            return pb.FilterDone(sequence=sequence)

        return forget

    def _reset(self) -> None:
        self._loaded.result().reset()

    def end(self, reason: str) -> None:
        """The process is about to end: open streams and waiting calls are told why, instead of being broken off."""
        self._sessions.close(reason)
        if not self._ending.done():
            self._ending.set_result(reason)

    async def _answer(self, call: str, context: grpc.aio.ServicerContext, wanted: asyncio.Future) -> Any:
        """What the model thread makes of it. Its errors become the call's status: one sentence, no traceback."""
        if not self._loaded.done():
            LOGGER.info("%s waits until the model is loaded", call)
        await asyncio.wait((wanted, self._ending), return_when=asyncio.FIRST_COMPLETED)
        if not wanted.done():
            await context.abort(grpc.StatusCode.UNAVAILABLE, self._ending.result())
        try:
            return wanted.result()
        except HeadraceError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, one_line(error))
        except Exception as error:
            LOGGER.debug("%s failed", call, exc_info=error)
            await context.abort(grpc.StatusCode.INTERNAL, one_line(error))


def _session_number(context: grpc.aio.ServicerContext) -> int:
    """The session that the stream's metadata names. Raises ProtocolError if it names none."""
    value = dict(context.invocation_metadata() or ()).get(SESSION_KEY, "")
    if not (isinstance(value, str) and value.isascii() and value.isdigit()):
        raise ProtocolError(f"the stream's metadata must hold {SESSION_KEY}: a decimal number")
    return int(value)
