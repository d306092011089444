"""Decode steps recorded as graphs: one launch instead of several hundred, for a few numbers of rows.

A batch takes the smallest graph that holds it; the rest of the graph's rows are padding that computes a token of
nobody, into a block of nobody. What changes from step to step lies in fixed memory that the recorded kernels of all
graphs read: which rows, how long they are, and their block tables.

Several ranks have the same graphs: what they exchange in one is recorded with it.
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
from headrace_server.distributed.collective import Collective, complaint
from headrace_server.errors import CapacityError, first_line, lacks_memory
from headrace_server.log import LOGGER
from headrace_server.step import Ints


def graph_sizes(asked: Sequence[int] | None, max_rows: int) -> list[int]:
    """Rows of each graph, the fewest first: those asked for, or steps of an eighth to a half. None above max_rows."""
    if asked is None:
        asked = [1, 2, 4, *range(8, 32, 8), *range(32, 128, 16), *range(128, max_rows + 1, 32), max_rows]
    return sorted({size for size in asked if 0 < size <= max_rows})


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """Of a step of decode rows alone."""

    tokens: Tensor  # [rows] int64: -1 - row, for what the row sampled last
    batch: AttentionBatch

    def of(self, rows: int) -> "DecodeInputs":
        """The same memory, for the first so many rows."""
        batch = self.batch
        starts = batch.query_starts[: rows + 1]
        return DecodeInputs(
            self.tokens[:rows],
            AttentionBatch(batch.block_tables[:rows], starts, batch.context_lengths[:rows], batch.most_queries),
        )


@dataclass(frozen=True, slots=True)
class Padding:
    """What padded rows name: nobody's."""

    row: int
    block: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """The decode step of up to so many rows."""

    size: int
    inputs: DecodeInputs
    graph: Graph  # its output: logits [size, vocab_size]
    room: Sequence[Tensor] = ()  # for the logits of others


class DecodeGraphs:
    """The graphs recorded so far."""

    def __init__(
        self,
        device: Device,
        collective: Collective,
        forward: Callable[[DecodeInputs], Tensor],
        sizes: Sequence[int],
        table_width: int,
        padding: Padding,
    ) -> None:
        """`forward` gives logits [rows, vocab_size]; of several ranks one that has no memory for it raises
        ShortOfMemory. `table_width` is the most blocks of a row."""
        self._device = device
        self._collective = collective
        self._forward = forward
        self._left = list(sizes)
        self._padding = padding
        self._inputs = _inputs(max(sizes, default=0), table_width, device.torch_device)
        self._recorded: list[Recorded] = []  # smallest first
        self._rehearsed: Recorded | None = None  # nobody runs it

    def record_largest(self) -> None:
        """To see what all graphs take: scratch memory, which they share and of which the largest needs most, and logits
        of each. It stays taken as long as these graphs are there. Raises CapacityError, on every rank, if there is no
        memory for it on one."""
        if self._left:
            *others, largest = self._left
            self._rehearsed = self._record(largest, others)

    def record_next(self) -> bool:
        """Record the smallest that is missing. False if none is, or if there is no memory for more."""
        if not self._left:
            return False
        size = self._left.pop(0)
        try:
            recorded = self._record(size)
        except CapacityError as error:
            LOGGER.warning("decode steps of %d rows and more are not recorded: %s", size, error)
            self._left.clear()
            return False
        self._recorded.append(recorded)
        LOGGER.debug("recorded the decode step of %d rows", size)
        if not self._left:
            LOGGER.info("decode steps are recorded for %s rows", [recorded.size for recorded in self._recorded])
        return bool(self._left)

    def holding(self, rows: int) -> Recorded | None:
        """The smallest graph for so many rows."""
        return next((recorded for recorded in self._recorded if recorded.size >= rows), None)

    def run(self, recorded: Recorded, rows: Ints, batch: Batch) -> Tensor:
        """Logits [rows, vocab_size] of a batch of decode rows, valid until the next call."""
        size, inputs = recorded.size, recorded.inputs
        arrays = [
            _padded(-1 - rows, size, -1 - self._padding.row),
            _padded(batch.context_lengths, size, 1),
            self._tables(batch, size),
        ]
        tokens, lengths, tables = self._device.upload(arrays)
        inputs.tokens.copy_(tokens)
        inputs.batch.context_lengths.copy_(lengths)
        # Columns past the longest table keep old block ids: no context reaches them.
        inputs.batch.block_tables[:, : tables.shape[1]].copy_(tables)
        return self._replay(recorded)[: len(rows)]

    def run_for_nobody(self, recorded: Recorded) -> None:
        """For the sake of other ranks, which run it too. Takes no memory."""
        self._pad(recorded.inputs)
        self._replay(recorded)

    def _replay(self, recorded: Recorded) -> Tensor:
        """What ranks exchange in it counts as one: on a GPU nobody here sees it."""
        joined = self._collective.joined
        logits = recorded.graph.replay()
        self._collective.joined = joined + 1
        return logits

    def _record(self, size: int, others: Sequence[int] = ()) -> Recorded:
        """A graph of so many rows, all of them padding for now, and room for the logits of those of `others`. Raises
        CapacityError if there is no memory for it, on every rank if on one: then none of them has the graph."""
        inputs, lack, width = self._inputs.of(size), "", 0
        self._pad(inputs)

        def run() -> Tensor:
            nonlocal lack, width
            try:
                logits = self._forward(inputs)
            except Exception as error:
                if not lacks_memory(error):
                    raise
                lack = first_line(error)
                return inputs.tokens  # of a graph that nobody will run
            width = logits.shape[1]
            return logits

        recorded = None
        try:
            graph = self._device.record(run)
            room = [torch.empty(rows, width, device=inputs.tokens.device) for rows in others]
            recorded = Recorded(size, inputs, graph, room)
        except Exception as error:
            # The device had none for the graph itself. Nobody waits for what is exchanged while it is captured.
            if not lacks_memory(error):
                raise
            lack = lack or first_line(error)
        what = f"there is no memory to record the decode step of {size} rows: {lack}"
        problem = complaint(self._collective, what if lack else "")
        if recorded is None or problem:
            raise CapacityError(problem)
        return recorded

    def _pad(self, inputs: DecodeInputs) -> None:
        inputs.tokens.fill_(-1 - self._padding.row)
        inputs.batch.context_lengths.fill_(1)
        inputs.batch.block_tables.fill_(self._padding.block)

    def _tables(self, batch: Batch, size: int) -> NDArray[np.int32]:
        tables = np.full((size, batch.block_tables.shape[1]), self._padding.block, np.int32)
        tables[: len(batch.block_tables)] = batch.block_tables
        return tables


def _inputs(rows: int, table_width: int, device: torch.device) -> DecodeInputs:
    tokens = torch.empty(rows, dtype=torch.int64, device=device)
    lengths = torch.empty(rows, dtype=torch.int32, device=device)
    tables = torch.empty((rows, table_width), dtype=torch.int32, device=device)
    starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
    return DecodeInputs(tokens, AttentionBatch(tables, starts, lengths, most_queries=1))


def _padded(values: NDArray, size: int, padding: int) -> NDArray:
    padded = np.full(size, padding, values.dtype)
    padded[: len(values)] = values
    return padded
