"""What a runner needs of whoever computes its steps."""

from dataclasses import dataclass
from typing import Protocol

from headrace_server.batch import StepRows
from headrace_server.errors import ProtocolError
from headrace_server.models.config import ModelConfig
from headrace_server.results import Computed
from headrace_server.rows import Rows
from headrace_server.step import Ints

__all__ = ["Compute", "Computed", "PoolPlan", "check_copies"]


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What Warmup agreed."""

    num_blocks: int
    max_rows: int
    served_positions: int  # of the longest sequence
    max_step_tokens: int  # prompt tokens and decode rows of one step


class Compute(Protocol):
    """A model on a device, with its KV pool and each row's last token. All of it on the model thread."""

    config: ModelConfig
    dtype: str  # as the contract names it: "bfloat16"
    device: str
    block_size: int  # tokens
    kv_bytes_per_token: int

    def available(self) -> tuple[int, float]:
        """Bytes that the pool could take now, without the present one, and the share of them that it may."""
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

    def compute(self, laid_out: StepRows, rows: Rows) -> Computed:
        """Forward pass and sampling of rows that are known to be computable; at least one."""
        ...


def check_copies(pairs: Ints, num_blocks: int) -> None:
    """Raises ProtocolError unless all blocks are in the pool."""

    if len(pairs) and pairs.max() >= num_blocks:
        raise ProtocolError(f"a copy names block {pairs.max()}, but the pool has {num_blocks}")
