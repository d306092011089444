"""Ranks in processes of their own, on torch.distributed: NCCL between GPUs, gloo between CPUs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from headrace_server.distributed.collective import MOST_SAID, WORDS, Kind, complaint
from headrace_server.distributed.lifeline import Lifeline
from headrace_server.distributed.one_shot import OneShotSum, Place, place_of, why_not
from headrace_server.errors import CapacityError, LostRank, first_line, lacking, lacks_memory
from headrace_server.log import LOGGER

FOREVER = timedelta(days=365)
"""A rank that is gone is noticed by the lifeline; one that hangs by the router, which names it. A rank that waits for a
router's next step waits as long as that takes."""


class ProcessGroup:
    """The `Collective` of several processes."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        store: dist.Store,
        lifeline: Lifeline,
        dtype: torch.dtype,
        device: torch.device,
        in_order: bool,
    ) -> None:
        """Every rank takes part. `dtype`: of what is summed. `in_order`: GPUs sum in the order of the ranks, as CPUs
        always do, for each element alike, whatever the size of the tensor."""
        self.rank = rank
        self.world_size = world_size
        self._lifeline = lifeline
        self.waits = False
        self.joined = 0
        with _others_may_be_gone():
            self._hosts = _gloo(rank, world_size, store, lifeline.address)
            self._devices = self._hosts if device.type == "cpu" else _nccl(rank, world_size, store, device)
        self._in_order = in_order or device.type == "cpu"
        self._one_shot = None if self._in_order else self._small_sum(store, dtype, device)

    def all_reduce(self, x: Tensor) -> Tensor:
        if self._in_order:
            parts = self._room(Kind.SUM, x)
            self.take_part(Kind.SUM, x, parts)
            return _sum_in_order(parts)
        one_shot = self._one_shot is not None and self._one_shot.takes(x)
        total = x.new_empty(x.shape) if one_shot else x
        self.take_part(Kind.SUM, x, total)
        return total

    def gather(self, x: Tensor) -> list[Tensor] | None:
        parts = self._room(Kind.GATHER, x)
        self.take_part(Kind.GATHER, x, parts)
        return list(parts) if self.rank == 0 else None

    def broadcast(self, x: Tensor) -> None:
        self.take_part(Kind.BROADCAST, x, x)

    def receives(self, kind: Kind) -> int:
        everyones = self._in_order if kind is Kind.SUM else kind is Kind.GATHER and self.rank == 0
        return self.world_size if everyones else 0

    def take_part(self, kind: Kind, x: Tensor, room: Tensor) -> None:
        with self._together():
            if kind is Kind.GATHER:
                self._devices.gather([list(room)] if self.rank == 0 else [], [x], dist.GatherOptions()).wait()
            elif kind is Kind.BROADCAST:
                self._devices.broadcast(x, 0).wait()
            elif self._in_order:
                self._devices._allgather_base(room.view(-1), x.reshape(-1)).wait()
            elif self._one_shot is not None and self._one_shot.takes(x):
                self._one_shot(x, room)
            else:
                self._devices.allreduce(x).wait()
        self.joined += 1

    def same(self, mine: tuple[int, ...]) -> bool:
        said = torch.zeros(WORDS, dtype=torch.int64)
        said[: len(mine)] = torch.tensor(mine)
        everyone = [torch.empty_like(said) for _ in range(self.world_size)]
        with self._together():
            self._hosts.allgather(everyone, said).wait()
        return all(torch.equal(said, other) for other in everyone)

    def least(self, value: int) -> int:
        least = torch.tensor(value)
        with self._together():
            self._hosts.allreduce(least, dist.ReduceOp.MIN).wait()
        return int(least)

    def tell_all(self, mine: str) -> list[str]:
        said = torch.zeros(MOST_SAID, dtype=torch.uint8)
        letters = torch.tensor(list(mine.encode()[:MOST_SAID]), dtype=torch.uint8)
        said[: len(letters)] = letters
        everyone = [torch.empty_like(said) for _ in range(self.world_size)]
        with self._together():
            self._hosts.allgather(everyone, said).wait()
        return [bytes(other.tolist()).rstrip(b"\0").decode(errors="ignore") for other in everyone]

    def _small_sum(self, store: dist.Store, dtype: torch.dtype, device: torch.device) -> OneShotSum | None:
        """None, with a line in the log, where this machine or this torch has no such thing. The same on every rank."""
        with _others_may_be_gone():
            store.set(_PLACE.format(self.rank), json.dumps(place_of(device)))
            places = [Place(*json.loads(store.get(_PLACE.format(rank)))) for rank in range(self.world_size)]
        one_shot, lack = None, ""
        problem = complaint(self, why_not(dtype, places, self.rank) or "")
        if not problem:
            try:
                one_shot = OneShotSum(dtype, device)
            except (RuntimeError, ImportError, AttributeError) as error:
                lack = first_line(error)
            problem = complaint(self, lack)
        if problem:
            LOGGER.info("NCCL sums small tensors too: %s", problem)
            return None
        return one_shot

    def _room(self, kind: Kind, x: Tensor) -> Tensor:
        return x.new_empty((self.receives(kind), *x.shape))

    def give_up(self, error: BaseException) -> None:
        self._lifeline.give_up(error)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """In what all ranks do. It does not return once one of them is gone: nothing that this rank could go on with is
        left, and the lifeline says who it was. Nor where there is no memory for the exchange itself: what the others
        have of it, nobody knows."""
        self.waits = True
        try:
            with _others_may_be_gone():
                yield
        except (LostRank, CapacityError) as error:
            self._lifeline.give_up(error)
        finally:
            self.waits = False


_PLACE = "place of rank {}"
"""Key under which a rank says where it is."""


def _sum_in_order(parts: Tensor) -> Tensor:
    """Of the ranks, in float32. NCCL and gloo move less, but their own sums of more than two begin with another rank
    for each part of a tensor, so that a row's bits would depend on how many rows there are."""
    total = parts[0].float()
    for part in parts[1:]:
        total += part
    return total.to(parts.dtype)


def _gloo(rank: int, world_size: int, store: dist.Store, address: str) -> Any:
    """On the address by which this rank reaches the others. Left to itself gloo asks for that of the host's name, which
    may be one that other machines don't reach, and is more than ranks of one machine need to listen on."""
    options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
    options._timeout = FOREVER
    return dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, world_size, options)


def _nccl(rank: int, world_size: int, store: dist.Store, device: torch.device) -> Any:
    torch.cuda.set_device(device)
    meeting = dist.PrefixStore("nccl", store)
    dist.init_process_group("nccl", store=meeting, rank=rank, world_size=world_size, timeout=FOREVER, device_id=device)
    return dist.group.WORLD


@contextmanager
def _others_may_be_gone() -> Iterator[None]:
    """gloo's and NCCL's errors name sockets, not ranks."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if lacks_memory(error):
            raise CapacityError(f"there is no memory for what ranks exchange: {lacking(error)}") from error
        raise LostRank(f"the ranks lost each other: {first_line(error)}") from error
