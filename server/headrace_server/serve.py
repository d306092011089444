"""One shard process's life: check, listen, load, serve, end.

The socket is there at once and Health answers; Info and Warmup wait while the weights are read on the model thread.
"""

import asyncio
import os
import signal
import sys
from typing import Any

import grpc

from headrace_server.errors import ConfigError, report
from headrace_server.flags import ServeFlags
from headrace_server.log import LOGGER
from headrace_server.model_thread import ModelThread
from headrace_server.models.config import ModelConfig
from headrace_server.models.registry import read_config
from headrace_server.models.split import Split
from headrace_server.pb.shard_pb2_grpc import add_ShardServicer_to_server
from headrace_server.service import ShardService
from headrace_server.weights.index import checkpoint_files

PATIENCE_SECONDS = 2.0  # for the first question, when loading failed
GRACE_SECONDS = 0.5  # for calls under way when the process is told to end
MAX_MESSAGE_BYTES = 256 * 2**20  # the longest prompts of a full batch are far below
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # two shards on one port must be an error
)
REMOTE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # without it gRPC waits for a minute, whatever the line above says
)
"""For a router elsewhere, whose machine may be gone without a word: it answers, or its session ends and another router
can come. One on this machine may stand still for as long as somebody likes."""


def run(flags: ServeFlags) -> int:
    """Serve until SIGTERM or SIGINT, or until loading fails, then end the process.

    Raises HeadraceError if the model directory shows at once that it cannot be served.
    """
    config = read_config(flags.model_dir, flags.stretch)
    Split.of(config, flags.rank, flags.world_size)
    checkpoint_files(flags.model_dir)
    status = 0
    try:
        asyncio.new_event_loop().run_until_complete(_serve(flags, config))
    except Exception as error:
        LOGGER.debug("this is where it happened", exc_info=error)
        status = report(error)
    # The model thread may be in the middle of a step; leaving through the interpreter's shutdown would wait for it. And
    # tasks of the gRPC server that have all but ended need not be cancelled, which it would log.
    sys.stderr.flush()
    os._exit(status)


async def _serve(flags: ServeFlags, config: ModelConfig) -> None:
    stopped = _stop_signal()
    model = ModelThread()
    loaded = model.submit(lambda: _load(flags, config))
    server = grpc.aio.server(options=options_for(flags.address))
    service = ShardService(flags, model, loaded)
    add_ShardServicer_to_server(service, server)
    address = _bind(server, flags.address)
    await server.start()
    LOGGER.info("listening on %s; loading the model", address)
    try:
        await asyncio.wait({loaded, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            if loaded.exception() is not None:
                # Whoever starts a shard asks it for Info at once, and is told in the answer why there is no model.
                await asyncio.wait((service.asked, stopped), timeout=PATIENCE_SECONDS)
            loaded.result()  # raises what loading raised
            await stopped
        LOGGER.info("ending: %s", stopped.result())
    finally:
        service.end("the shard ends")
        await server.stop(GRACE_SECONDS)
        flags.remove_socket()


def options_for(address: str) -> tuple[tuple[str, int], ...]:
    """Of a gRPC server that listens there."""
    return OPTIONS if address.startswith("unix:") else OPTIONS + REMOTE


def _load(flags: ServeFlags, config: ModelConfig) -> Any:
    from headrace_server.load import load_runner  # may import torch

    return load_runner(flags, config)


def _stop_signal() -> "asyncio.Future[str]":
    """A future that gets the name of the first signal that tells the process to end."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[str] = loop.create_future()

    def stop(name: str) -> None:
        if not stopped.done():
            stopped.set_result(name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    return stopped


def _bind(server: grpc.aio.Server, address: str) -> str:
    """Listen; returns the address with the port that was picked. Raises ConfigError if it is taken or malformed."""
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {address}: {error}") from None
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
