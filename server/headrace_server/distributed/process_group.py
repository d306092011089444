"""Ranks in processes of their own, on torch.distributed: NCCL between GPUs, gloo between CPUs."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from headrace_server.distributed.collective import WORDS
from headrace_server.distributed.lifeline import Lifeline
from headrace_server.distributed.one_shot import OneShotSum, one_shot_sum
from headrace_server.errors import LostRank

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
        with _others_may_be_gone():
            self._hosts = _gloo(rank, world_size, store, lifeline.address)
            self._devices = self._hosts if device.type == "cpu" else _nccl(rank, world_size, store, device)
        self._in_order = in_order or device.type == "cpu"
        one_shot = None if self._in_order else one_shot_sum(dtype, device)
        all_have_it = self.same((one_shot is not None,))
        self._one_shot: OneShotSum | None = one_shot if all_have_it else None

    def all_reduce(self, x: Tensor) -> Tensor:
        with self._together():
            if self._in_order:
                return self._sum_in_order(x)
            if self._one_shot is not None and self._one_shot.takes(x):
                return self._one_shot(x)
            self._devices.allreduce(x).wait()
            return x

    def gather(self, x: Tensor) -> list[Tensor] | None:
        parts = [torch.empty_like(x) for _ in range(self.world_size)] if self.rank == 0 else []
        with self._together():
            self._devices.gather(parts, x, 0).wait()
        return parts or None

    def broadcast(self, x: Tensor) -> None:
        with self._together():
            self._devices.broadcast(x, 0).wait()

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

    def _sum_in_order(self, x: Tensor) -> Tensor:
        """Of the ranks, in float32. NCCL and gloo move less, but their own sums of more than two begin with another
        rank for each part of x, so that a row's bits would depend on how many rows there are."""
        parts = [torch.empty_like(x) for _ in range(self.world_size)]
        self._devices.allgather([parts], [x]).wait()
        total = parts[0].float()
        for part in parts[1:]:
            total += part
        return total.to(x.dtype)

    def give_up(self, error: BaseException) -> None:
        self._lifeline.give_up(error)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """In what all ranks do. It does not return once one of them is gone: nothing that this rank could go on with is
        left, and the lifeline says who it was."""
        self.waits = True
        try:
            with _others_may_be_gone():
                yield
        except LostRank as error:
            self._lifeline.give_up(error)
        finally:
            self.waits = False


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
    except RuntimeError as error:
        raise LostRank(f"the ranks lost each other: {str(error).splitlines()[0]}") from error
