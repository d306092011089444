"""How a decoder's layers are put together from a checkpoint's modules, however their weights are stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace_kernels.linear import PackedLinear
from headrace_server.weights.arrays import ArrayCheckpoint


@dataclass(frozen=True, slots=True)
class Part:
    """Rows [begin, end) of a module's weights [height, …] go to panels first_panel, first_panel + step, …"""

    name: str
    height: int
    begin: int
    end: int
    first_panel: int
    step: int = 1


class LinearMaker(Protocol):
    """How a layer's weights are stored: as they are, or quantized."""

    def make(
        self, checkpoint: ArrayCheckpoint, parts: Sequence[Part], in_features: int, *, bias: bool, head: bool = False
    ) -> PackedLinear:
        """One layer of all parts; together they fill its panels. `head`: it is the language-model head."""
        ...

    def description(self) -> str | None:
        """A line for the log when all layers are made."""
        ...
