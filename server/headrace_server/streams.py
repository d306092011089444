"""One stream of a session: reads messages as they come, writes answers in the order of the messages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from headrace_server.errors import ProtocolError
from headrace_server.session import Session, Work


class _Ended(Exception):
    """The session ended under this stream."""


async def serve_stream(
    session: Session,
    name: str,
    messages: AsyncIterator[Any],
    to_work: Callable[[Any], Work],
    context: grpc.aio.ServicerContext,
) -> None:
    """Serve the stream until the client closes it or the session ends. However it ends, the session ends with it.

    Reading goes on while answers are computed: the next step waits in the inbox, not on the wire.
    """
    answers: asyncio.Queue[asyncio.Future | None] = asyncio.Queue()
    tasks: tuple[asyncio.Task, ...] = ()
    try:
        # Now, or the client's call would wait for the first answer; not before the session has its place, or a router
        # that is refused here would go on to other ranks.
        await context.send_initial_metadata(())
        reader = asyncio.create_task(_read(session, messages, to_work, answers))
        writer = asyncio.create_task(_write(session, answers, context))
        tasks = (reader, writer)
        await asyncio.wait((writer, session.ended), return_when=asyncio.FIRST_COMPLETED)
        if session.ended.done():
            raise _Ended(session.ended.result())
        for task in (writer, reader):  # both are done; either may have met a bug
            task.result()
    except _Ended as ended:
        await context.abort(grpc.StatusCode.ABORTED, f"session {session.number} ended: {ended}")
    finally:
        session.end(f"the {name} stream ended")
        for task in tasks:
            task.cancel()


async def _read(
    session: Session,
    messages: AsyncIterator[Any],
    to_work: Callable[[Any], Work],
    answers: "asyncio.Queue[asyncio.Future | None]",
) -> None:
    try:
        async for message in messages:
            answers.put_nowait(session.submit(message.sequence, to_work(message)))
    except ProtocolError as error:
        session.end(str(error))
    finally:
        answers.put_nowait(None)


async def _write(
    session: Session, answers: "asyncio.Queue[asyncio.Future | None]", context: grpc.aio.ServicerContext
) -> None:
    while (answer := await answers.get()) is not None:
        await context.write(await answer)
        session.answered()
