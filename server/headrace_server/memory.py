"""How much memory there is, and how much of it becomes KV blocks."""

from dataclasses import dataclass
from pathlib import Path

from headrace_server.errors import CapacityError

CPU_SHARE = 0.5  # of available memory: the router, the page cache and everybody else live there too
GPU_SHARE = 0.95  # of what is free beside what steps need: memory gets fragmented, and every graph takes a little
MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """What Warmup is asked to make room for. proto/shard.proto says what each means."""

    max_batch_size: int
    max_batch_prefill_tokens: int
    max_total_tokens: int  # 0: as many as positions and pool allow
    num_blocks: int | None  # None: what memory allows
    host_bytes: int = 0  # for KV that is swapped out

    @property
    def numbers(self) -> tuple[int, ...]:
        """All of it, for comparison."""
        pool = (self.num_blocks or 0, self.host_bytes)
        return (self.max_batch_size, self.max_batch_prefill_tokens, self.max_total_tokens, *pool)


def pool_size(
    limits: Limits, available: int, share: float, block_size: int, block_bytes: int, max_positions: int
) -> int:
    """Blocks of the pool. `available` in bytes, of which `share` may be taken unless the size is prescribed.

    Never more than max_batch_size requests of the longest length could fill; as many where blocks take no memory, on a
    rank without attention. Raises CapacityError, with both numbers, if what is asked for does not fit.
    """
    if limits.max_total_tokens > max_positions:
        raise CapacityError(
            f"max_total_tokens {limits.max_total_tokens} exceeds the {max_positions} positions of the model; "
            f"use --max-total-tokens {max_positions} or less"
        )
    if limits.num_blocks is not None:
        return _prescribed(limits, available, block_size, block_bytes)
    blocks_per_request = -(-(limits.max_total_tokens or max_positions) // block_size)
    most = limits.max_batch_size * blocks_per_request
    fitting = int(available * share) // block_bytes if block_bytes else most
    needed = blocks_per_request if limits.max_total_tokens else 1
    if fitting < needed:
        raise CapacityError(
            f"a request of {needed * block_size} tokens needs {needed * block_bytes // MIB} MiB of KV cache, but only "
            f"{int(available * share) // MIB} MiB may be used; lower --max-total-tokens or free memory"
        )
    return min(fitting, most)


def host_pool_size(limits: Limits, available: int, block_size: int, block_bytes: int, served: int) -> int:
    """Blocks of host memory for KV that is swapped out: what was asked for, within half of the `available` bytes and
    what a full batch of the longest requests could fill."""
    useful = limits.max_batch_size * -(-served // block_size)
    return min(min(limits.host_bytes, available // 2) // max(block_bytes, 1), useful)


def _prescribed(limits: Limits, available: int, block_size: int, block_bytes: int) -> int:
    num_blocks = limits.num_blocks or 0
    if num_blocks * block_bytes > available:
        raise CapacityError(
            f"a KV pool of {num_blocks} blocks needs {num_blocks * block_bytes // MIB} MiB, but only "
            f"{available // MIB} MiB are available; lower --max-batch-total-tokens or free memory"
        )
    if num_blocks * block_size < max(limits.max_total_tokens, 1):
        raise CapacityError(
            f"a KV pool of {num_blocks} blocks holds {num_blocks * block_size} tokens, fewer than max_total_tokens "
            f"{limits.max_total_tokens}; raise --max-batch-total-tokens or lower --max-total-tokens"
        )
    return num_blocks


def available_on_gpu(free: int, total: int, reserved: int, fraction: float) -> int:
    """Bytes of a GPU that may still be taken: what is free, less if this process, which holds `reserved` of it, may
    have only `fraction` of the total."""
    return max(min(free, int(total * fraction) - reserved), 0)


def available_bytes(root: Path = Path("/")) -> int:
    """Main memory that could be taken without swapping: the kernel's estimate, or less if a cgroup limits us."""
    lines = (root / "proc/meminfo").read_text().splitlines()
    meminfo = {name: int(rest.split()[0]) * 1024 for name, rest in (line.split(":", 1) for line in lines)}
    return min(meminfo["MemAvailable"], *_cgroup_headroom(root / "sys/fs/cgroup"), meminfo["MemTotal"])


def _cgroup_headroom(cgroup: Path) -> list[int]:
    """What the cgroup of a container still allows, version 2 or 1; empty if it sets no limit."""
    for limit_file, usage_file in (
        (cgroup / "memory.max", cgroup / "memory.current"),
        (cgroup / "memory/memory.limit_in_bytes", cgroup / "memory/memory.usage_in_bytes"),
    ):
        try:
            limit, usage = limit_file.read_text().strip(), int(usage_file.read_text())
            cached = _file_cache(limit_file.parent / "memory.stat")
        except OSError:
            continue
        return [] if limit == "max" else [max(int(limit) - usage + cached, 0)]
    return []


def _file_cache(stat: Path) -> int:
    """Bytes that the kernel gives back when somebody needs them."""
    fields = dict(line.split() for line in stat.read_text().splitlines())
    return int(fields.get("inactive_file", 0))
