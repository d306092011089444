"""Decode steps recorded as graphs: one launch instead of several hundred, for a few numbers of rows.

A batch takes the smallest graph that holds it; the rest of the graph's rows are padding that computes a token of
nobody, into a block of nobody. What changes from step to step lies in fixed memory that the recorded kernels read:
which rows, how long they are, and their block tables.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_server.attention.interface import AttentionBatch
from headrace_server.batch import Batch
from headrace_server.devices.interface import Device, Graph
from headrace_server.log import LOGGER
from headrace_server.step import Ints


def graph_sizes(asked: Sequence[int] | None, max_rows: int) -> list[int]:
    """Rows of each graph, the fewest first: those asked for, or steps of an eighth to a half. None above max_rows."""
    if asked is None:
        asked = [1, 2, 4, *range(8, 32, 8), *range(32, 128, 16), *range(128, max_rows + 1, 32), max_rows]
    return sorted({size for size in asked if 0 < size <= max_rows})


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """Of a step of decode rows alone; fixed memory of a graph."""

    tokens: Tensor  # [rows] int64: -1 - row, for what the row sampled last
    batch: AttentionBatch


@dataclass(frozen=True, slots=True)
class Padding:
    """What padded rows name: nobody's."""

    row: int
    block: int


@dataclass(frozen=True, slots=True)
class _Recorded:
    size: int
    inputs: DecodeInputs
    graph: Graph  # its output: logits [size, vocab_size]


class DecodeGraphs:
    """The graphs recorded so far."""

    def __init__(
        self,
        device: Device,
        forward: Callable[[DecodeInputs], Tensor],
        sizes: Sequence[int],
        table_width: int,
        padding: Padding,
    ) -> None:
        """`forward` gives logits [rows, vocab_size]; `table_width` is the most blocks of a row."""
        self._device = device
        self._forward = forward
        self._left = list(sizes)
        self._width = table_width
        self._padding = padding
        self._recorded: list[_Recorded] = []  # smallest first

    def record_largest(self) -> None:
        """And drop it: later ones find room in the memory that it took."""
        if self._left:
            self._record(self._left[-1])

    def record_next(self) -> bool:
        """Record the smallest that is missing. False if none is."""
        if not self._left:
            return False
        self._recorded.append(self._record(self._left.pop(0)))
        LOGGER.debug("recorded the decode step of %d rows", self._recorded[-1].size)
        if not self._left:
            LOGGER.info("decode steps are recorded for %s rows", [recorded.size for recorded in self._recorded])
        return bool(self._left)

    def run(self, rows: Ints, batch: Batch) -> Tensor | None:
        """Logits [rows, vocab_size] of a batch of decode rows, valid until the next call; None if no graph holds it."""
        found = next((recorded for recorded in self._recorded if recorded.size >= len(rows)), None)
        if found is None:
            return None
        arrays = [
            _padded(-1 - rows, found.size, -1 - self._padding.row),
            _padded(batch.context_lengths, found.size, 1),
            self._tables(batch, found.size),
        ]
        tokens, lengths, tables = self._device.upload(arrays)
        found.inputs.tokens.copy_(tokens)
        found.inputs.batch.context_lengths.copy_(lengths)
        # Columns past the longest table keep old block ids: no context reaches them.
        found.inputs.batch.block_tables[:, : tables.shape[1]].copy_(tables)
        return found.graph.replay()[: len(rows)]

    def _record(self, size: int) -> _Recorded:
        """A graph of so many rows, all of them padding for now."""
        device = self._device.torch_device
        tokens = torch.full((size,), -1 - self._padding.row, dtype=torch.int64, device=device)
        lengths = torch.ones(size, dtype=torch.int32, device=device)
        tables = torch.full((size, self._width), self._padding.block, dtype=torch.int32, device=device)
        starts = torch.arange(size + 1, dtype=torch.int32, device=device)
        inputs = DecodeInputs(tokens, AttentionBatch(tables, starts, lengths, most_queries=1))
        return _Recorded(size, inputs, self._device.record(lambda: self._forward(inputs)))

    def _tables(self, batch: Batch, size: int) -> NDArray[np.int32]:
        tables = np.full((size, batch.block_tables.shape[1]), self._padding.block, np.int32)
        tables[: len(batch.block_tables)] = batch.block_tables
        return tables


def _padded(values: NDArray, size: int, padding: int) -> NDArray:
    padded = np.full(size, padding, values.dtype)
    padded[: len(values)] = values
    return padded
