"""Who is taken for a rank, and by whom."""

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch import distributed as dist

from headrace_server.distributed import join as joining
from headrace_server.distributed import lifeline
from headrace_server.distributed.lifeline import Lifeline, listen
from headrace_server.distributed.rendezvous import Rendezvous
from headrace_server.errors import LostRank

NOBODY = "rank 0 waits for no rank 1: another process is rank 1 already, or rank 0 has ended; start each --rank once"


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The process lives on when a connection of the test closes, which is when the test ends."""
    monkeypatch.setattr(lifeline, "PATIENCE_SECONDS", 10.0)
    connections: list[socket.socket] = []
    monkeypatch.setattr(Lifeline, "_watch", lambda self: connections.extend(self._peers.values()))
    yield
    for connection in connections:
        connection.close()


def call(address: tuple[str, int], rank: int) -> Lifeline:
    return Lifeline.to_rank_0(rank, address, lambda: None)


def test_a_rank_that_is_started_twice_is_told_so_and_disturbs_nobody() -> None:
    """Once while rank 0 still waits for others, and once when it has all of them."""
    listener = listen("127.0.0.1")
    address = listener.getsockname()
    with ThreadPoolExecutor(1) as pool:
        rank_0 = pool.submit(Lifeline.of_rank_0, listener, 3, lambda: None)
        first = call(address, 1)
        with pytest.raises(LostRank, match=NOBODY):
            call(address, 1)
        second = call(address, 2)
        assert rank_0.result().address == first.address == second.address
    with pytest.raises(LostRank, match=NOBODY):
        call(address, 1)


def test_a_rank_that_died_before_all_were_there_may_be_started_again() -> None:
    listener = listen("127.0.0.1")
    address = listener.getsockname()
    with ThreadPoolExecutor(1) as pool:
        rank_0 = pool.submit(Lifeline.of_rank_0, listener, 3, lambda: None)
        with socket.create_connection(address) as dead:
            dead.sendall((1).to_bytes(4, "little"))
            assert dead.recv(4) == bytes(4)
        again, other = call(address, 1), call(address, 2)
        assert rank_0.result().address == again.address == other.address


def test_what_an_earlier_start_said_in_a_store_that_outlives_it_concerns_nobody() -> None:
    """torchrun --max-restarts: the ranks' addresses of before are still in its store."""
    agents = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    first, second = (joining._store(Rendezvous(0, 2, "127.0.0.1", agents.port, True, attempt)) for attempt in (0, 1))
    first.set(joining.LIFELINE, str(os.getpid()))
    assert not second.check([joining.LIFELINE])
