"""Ranks find each other: by a store of addresses at the rendezvous, then by connections of their own."""

import os
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta

import torch
import torch.distributed as dist

from headrace_server.distributed.alike import Setting, check_alike
from headrace_server.distributed.collective import Collective
from headrace_server.distributed.lifeline import Lifeline, listen
from headrace_server.distributed.process_group import ProcessGroup
from headrace_server.distributed.rendezvous import PATIENCE_SECONDS, Rendezvous
from headrace_server.errors import ConfigError, LostRank
from headrace_server.log import LOGGER

LIFELINE = "lifeline"
"""Key under which rank 0 says the port of its lifeline."""


def join(
    place: Rendezvous,
    dtype: torch.dtype,
    device: torch.device,
    last: Callable[[], None],
    *,
    settings: Mapping[str, Setting],
    in_order: bool,
) -> Collective:
    """Wait for all ranks, and be one of them. `last` runs before this process ends because another one did. `settings`:
    of `check_alike`. `in_order`: of `ProcessGroup`.

    Raises ConfigError if they are not alike, and that or LostRank, naming the rendezvous, if they don't come together.
    """
    where = f"{place.host}:{place.port}"
    LOGGER.info("rank %d of %d: meeting the others at %s", place.rank, place.world_size, where)
    store = _store(place)
    try:
        check_alike(store, place.rank, place.world_size, settings)
        lifeline = _lifeline(place, store, last)
    except (OSError, RuntimeError) as error:
        raise LostRank(
            f"not all of {place.world_size} ranks met at {where} within {PATIENCE_SECONDS:.0f} s: {error}"
        ) from error
    return ProcessGroup(place.rank, place.world_size, store, lifeline, dtype, device, in_order)


def _store(place: Rendezvous) -> dist.Store:
    hosts = place.rank == 0 and not place.store_is_up
    # Bound here: torch would take the port on every interface, and its error would name no flag.
    listener = _bound(place) if hosts else None
    try:
        store = dist.TCPStore(
            place.host,
            place.port,
            is_master=hosts,
            timeout=timedelta(seconds=PATIENCE_SECONDS),
            wait_for_workers=False,
            master_listen_fd=listener.detach() if listener else None,
        )
    except RuntimeError as error:
        raise LostRank(
            f"nobody was found at {place.host}:{place.port} (--master-addr, --master-port) within "
            f"{PATIENCE_SECONDS:.0f} s: {str(error).splitlines()[0]}"
        ) from error
    return dist.PrefixStore(f"attempt {place.attempt}", store)


def _bound(place: Rendezvous) -> socket.socket:
    try:
        return socket.create_server((place.host, place.port))
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {place.host}:{place.port} (--master-addr, --master-port), where the ranks meet: "
            f"{os.strerror(error.errno or 0)}; name a free port"
        ) from None


def _lifeline(place: Rendezvous, store: dist.Store, last: Callable[[], None]) -> Lifeline:
    if place.rank == 0:
        listener = listen(place.host)
        store.set(LIFELINE, str(listener.getsockname()[1]))
        return Lifeline.of_rank_0(listener, place.world_size, last)
    port = int(store.get(LIFELINE))
    return Lifeline.to_rank_0(place.rank, (place.host, port), last)
