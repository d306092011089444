"""What a runner needs of whoever computes its steps."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headrace_server.batch import StepRows
from headrace_server.distributed.collective import Collective
from headrace_server.errors import ProtocolError
from headrace_server.models.config import ModelConfig
from headrace_server.prompt_logprobs import AskedChunk
from headrace_server.rows import Rows
from headrace_server.sampling.samples import Samples
from headrace_server.step import Floats, Ints


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What Warmup agreed."""

    num_blocks: int
    max_rows: int
    served_positions: int  # of the longest sequence
    max_step_tokens: int  # prompt tokens and decode rows of one step
    host_blocks: int = 0  # for KV that is swapped out


@dataclass(frozen=True, slots=True)
class Computed:
    """What the healthy rows of a step gave, on the host."""

    samples: Samples | None  # None: no row samples, or this is not rank 0
    told: list[Floats]  # of each chunk that asked: log-probabilities of its `following`
    forward_us: int
    sampling_us: int


class Launched(Protocol):
    """A step under way."""

    def land(self) -> Computed:
        """Waits for its end. Any thread, once, steps in their order."""
        ...


class Compute(Protocol):
    """A model on a device, with its KV pool and each row's last token. All of it on the model thread."""

    config: ModelConfig
    dtype: str  # as the contract names it: "bfloat16"
    device: str
    block_size: int  # tokens
    kv_bytes_per_token: int  # of this rank
    collective: Collective  # the ranks that hold the model together, this one among them
    overlaps: bool  # `launch` returns before the step has ended, so the next may be launched meanwhile

    def available(self) -> tuple[int, float]:
        """Bytes that the pool could take now, without the present one, and the share of them that it may."""
        ...

    def worst_case(self, run: Callable[[], None]) -> int:
        """Bytes that steps need beside weights and pool: what `run` needs at its peak. 0, without running it, where the
        share leaves room enough."""
        ...

    def prepare(self, plan: PoolPlan) -> None:
        """Make the pool, and whatever steps within the plan need. In place of the one before."""
        ...

    def free_pool(self) -> None:
        """Give the pool's memory back."""
        ...

    def copy_blocks(self, pairs: Ints) -> None:
        """Make the second block of each pair [n, 2] a copy of the first. Raises ProtocolError for unknown blocks."""
        ...

    def swap(self, out: Ints, back: Ints) -> None:
        """Copy blocks of the pool to host memory, then others back, before anything that is launched later: pairs
        [n, 2] of the block that is read and the one that is written. Raises ProtocolError for unknown blocks, and for
        host blocks that hold nothing."""
        ...

    def swap_us(self) -> int:
        """Microseconds of copying one block, measured and rounded up; 0 without host blocks. Before the first step."""
        ...

    def launch(self, laid_out: StepRows, asked: list[AskedChunk], rows: Rows) -> Launched:
        """Forward pass and sampling of rows that are known to be computable; at least one. Rank 0 has the samples.

        One of several ranks that has no memory for it raises ShortOfMemory where it can do what the others wait for.
        """
        ...

    def usable(self) -> bool:
        """A step has failed: whether later ones can do better. False where the device is lost to this process."""
        ...

    def relieve(self) -> None:
        """A step has failed for want of memory: give back what is kept for reuse."""
        ...

    def rehearse(self) -> None:
        """Take the memory that `improve` will need at most. It comes back with the pool's."""
        ...

    def improve(self) -> bool:
        """Make later steps faster, for a moment, while there is nothing else to do. False: there is nothing more."""
        ...


def check_copies(pairs: Ints, num_blocks: int) -> None:
    """Raises ProtocolError unless all blocks are in the pool."""

    if len(pairs) and pairs.max() >= num_blocks:
        raise ProtocolError(f"a copy names block {pairs.max()}, but the pool has {num_blocks}")
