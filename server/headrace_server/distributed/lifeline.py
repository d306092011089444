"""How ranks notice that one of them is gone, at once and by name, whatever they are doing.

Every rank keeps a connection to rank 0. A process that ends, however it ends, closes it; a machine that is gone stops
answering its probes. Rank 0 tells the others who it was. Collectives alone would not do: an idle rank is in none, and
on a GPU a kernel would spin for ever.
"""

import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

from headrace_server.distributed.rendezvous import PATIENCE_SECONDS
from headrace_server.errors import LostRank, one_line, report

EXIT_LOST = 3
"""Exit status of a rank that ends because another one did. The launcher knows it: router/app/src/shard_group.rs."""
GREETING_SECONDS = 5.0
LINGER_SECONDS = 1.0
"""From the news to this process's end: whoever watches all ranks should see the one end first that went first."""

_RANK = struct.Struct("<I")  # the first thing on a connection, both ways: whose it is
_PROBES = ((socket.TCP_KEEPIDLE, 1), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 3))  # seconds, seconds, times


class Lifeline:
    """This rank's connections, watched by a thread of their own."""

    def __init__(self, rank: int, peers: Mapping[int, socket.socket], last: Callable[[], None]) -> None:
        """`peers`: of rank 0 all others, of any other rank just rank 0. `last` runs before the process ends."""
        self._rank = rank
        self._peers = peers
        self._last = last
        self._ending = threading.Lock()  # whoever takes it ends the process; nobody gives it back
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    @classmethod
    def of_rank_0(cls, listener: socket.socket, world_size: int, last: Callable[[], None]) -> "Lifeline":
        """Waits until every other rank has called, and tells each that it is one of them."""
        peers: dict[int, socket.socket] = {}
        with listener:
            listener.settimeout(PATIENCE_SECONDS)
            while len(peers) < world_size - 1:
                peer, _ = listener.accept()
                rank = _greeting(peer)
                before = peers.get(rank)
                if rank not in range(1, world_size) or (before and _is_there(before)):
                    peer.close()  # whoever that was: no rank, or one that is there already
                    continue
                if before:
                    before.close()
                peers[rank] = _probed(peer)
                _greet(peer, 0)
        return cls(0, peers, last)

    @classmethod
    def to_rank_0(cls, rank: int, address: tuple[str, int], last: Callable[[], None]) -> "Lifeline":
        """Raises LostRank if rank 0 does not take this process for that rank."""
        nobody = LostRank(
            f"rank 0 waits for no rank {rank}: another process is rank {rank} already, or rank 0 has ended; "
            "start each --rank once, and all of them together"
        )
        try:
            peer = socket.create_connection(address, timeout=PATIENCE_SECONDS)
        except ConnectionError:
            raise nobody from None
        _greet(peer, rank)
        if not _is_taken(_probed(peer)):
            peer.close()
            raise nobody
        return cls(rank, {0: peer}, last)

    @property
    def address(self) -> str:
        """Of this rank, as the others reach it."""
        return next(iter(self._peers.values())).getsockname()[0]

    def give_up(self, error: BaseException) -> NoReturn:
        """End the process because of `error`, and tell the others."""
        if isinstance(error, LostRank):
            time.sleep(2 * LINGER_SECONDS)  # the watcher is told by name who was lost, and ends the process meanwhile
        self._ending.acquire()
        self._tell(f"rank {self._rank} failed: {one_line(error)}")
        self._last()
        os._exit(report(error))

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for rank, peer in self._peers.items():
                selector.register(peer, selectors.EVENT_READ, rank)
            ((key, _), *_) = selector.select()
        news = _last_words(self._peers[key.data]) or f"rank {key.data} is gone"
        self._ending.acquire()
        self._tell(news)
        time.sleep(LINGER_SECONDS)
        self._last()
        report(LostRank(f"{news}; this rank is of no use without it"))
        os._exit(EXIT_LOST)

    def _tell(self, news: str) -> None:
        for peer in self._peers.values():
            try:
                peer.sendall(news.encode())
                peer.shutdown(socket.SHUT_WR)
            except OSError:
                continue  # gone already


def listen(host: str) -> socket.socket:
    """Where rank 0 waits for the others' calls."""
    return socket.create_server((host, 0))


def _greet(peer: socket.socket, rank: int) -> None:
    with suppress(ConnectionError):  # who is gone already is missed by whoever listens to it next
        peer.sendall(_RANK.pack(rank))


def _is_taken(peer: socket.socket) -> bool:
    """Whether rank 0 greets this rank, as it does at once, instead of closing the connection."""
    try:
        return len(peer.recv(_RANK.size)) == _RANK.size
    except ConnectionError:
        return False


def _is_there(peer: socket.socket) -> bool:
    """Whether a rank that has called lives still. It says nothing more, so there is nothing to read."""
    try:
        peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return True
    except ConnectionError:
        pass
    return False


def _greeting(peer: socket.socket) -> int:
    """The rank that calls; 0, which never calls, if it doesn't say."""
    peer.settimeout(GREETING_SECONDS)
    try:
        said = peer.recv(_RANK.size)
    except OSError:
        return 0
    return int(_RANK.unpack(said)[0]) if len(said) == _RANK.size else 0


def _probed(peer: socket.socket) -> socket.socket:
    """Blocking, and broken when the machine at the other end stops answering."""
    peer.settimeout(None)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _PROBES:
        peer.setsockopt(socket.IPPROTO_TCP, option, value)
    return peer


def _last_words(peer: socket.socket) -> str:
    """All that the other end says before it closes."""
    said = b""
    try:
        while part := peer.recv(4096):
            said += part
    except OSError:
        pass  # reset, or no answer to probes: it said no more
    return said.decode(errors="replace")
