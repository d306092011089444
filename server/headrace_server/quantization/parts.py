"""How a decoder's layers are put together from a checkpoint's modules, however their weights are stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace_kernels.linear import PackedLinear
from headrace_server.weights.arrays import ArrayCheckpoint
from headrace_server.weights.slice import Slice


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a module's weights go to panels first_panel, first_panel + step, …"""

    name: str
    rows: Slice
    first_panel: int
    step: int = 1


class LinearMaker(Protocol):
    """How a layer's weights are stored: as they are, or quantized."""

    def make(
        self, checkpoint: ArrayCheckpoint, parts: Sequence[Part], inputs: Slice, *, bias: bool, head: bool = False
    ) -> PackedLinear:
        """One layer of all parts, which together fill its panels, and of these inputs of them. `head`: it is the
        language-model head. Raises ConfigError where what is stored cannot be cut there."""
        ...

    def description(self) -> str | None:
        """A line for the log when all layers are made."""
        ...
