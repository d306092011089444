"""What sampling knows of every row between steps, as numpy columns: a step selects its rows by their numbers."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

FIRST_WIDTH = 256  # tokens; doubled when a row outgrows it


class SparseRows:
    """Some tokens of each row, with a value each. A row without any costs nothing.

    ids, values  [max_rows, width] int32 and the dtype asked for; of row r the first lengths[r] entries count
    lengths      [max_rows] int64

    Memory that no row has reached is reserved and not used: one long row does not make all others long.
    """

    def __init__(self, max_rows: int, dtype: type) -> None:
        self.ids = np.zeros((max_rows, FIRST_WIDTH), np.int32)
        self.values: np.ndarray = np.zeros((max_rows, FIRST_WIDTH), dtype)
        self.lengths = np.zeros(max_rows, np.int64)

    @property
    def width(self) -> int:
        """Tokens that each row has room for."""
        return self.ids.shape[1]

    def put(self, row: int, ids: Ints, values: np.ndarray) -> None:
        """Replace what the row has."""
        self.reserve(len(ids))
        self.ids[row, : len(ids)] = ids
        self.values[row, : len(ids)] = values
        self.lengths[row] = len(ids)

    def count(self, rows: Ints, tokens: Ints) -> None:
        """Add 1 to the value of one token of each row; tokens [rows]. One that the row has not gets the value 1."""
        lengths = self.lengths[rows]
        self.reserve(int(lengths.max()) + 1)
        longest = int(lengths.max())
        found = (self.ids[rows, :longest] == tokens[:, None]) & (np.arange(longest) < lengths[:, None])
        is_new = ~found.any(axis=1)
        at = np.where(is_new, lengths, found.argmax(axis=1) if longest else 0)
        self.ids[rows, at] = tokens
        self.values[rows, at] = np.where(is_new, 1, self.values[rows, at] + 1)
        self.lengths[rows] += is_new

    def reserve(self, length: int) -> None:
        """Make room for rows of so many tokens."""
        if length > self.width:
            self.ids, self.values = (_widened(part, max(length, 2 * self.width)) for part in (self.ids, self.values))

    def of(self, rows: Ints) -> tuple[NDArray[np.int32], np.ndarray]:
        """(ids, values), each [rows, longest]. Past a row's end ids repeats its first one and values is 0."""
        lengths = self.lengths[rows][:, None]
        longest = int(lengths.max())
        inside = np.arange(longest) < lengths
        ids, values = self.ids[rows, :longest], self.values[rows, :longest]
        return np.where(inside, ids, ids[:, :1]), np.where(inside, values, values.dtype.type(0))


class Columns:
    """One entry of each column per row that a batch may hold."""

    def __init__(self, max_rows: int) -> None:
        def column(dtype: type) -> np.ndarray:
            return np.zeros(max_rows, dtype)

        self.temperature = column(np.float32)  # 0: greedy
        self.top_k = column(np.int64)  # at least 1; the vocabulary's size or more: off
        self.typical_p = column(np.float32)  # 1: off
        self.top_p = column(np.float32)  # 1: off
        self.min_p = column(np.float32)  # 0: off
        self.repetition_penalty = column(np.float32)  # 1: off
        self.frequency_penalty = column(np.float32)  # 0: off
        self.presence_penalty = column(np.float32)  # 0: off
        self.seed = column(np.int64)  # the bits of an unsigned 64-bit seed
        self.logprobs = column(np.bool_)  # wants the log-probability of its token
        self.top_n = column(np.int64)  # wants so many likeliest tokens, and the log-probability of its own
        self.biases = SparseRows(max_rows, np.float32)  # added to logits
        # Each token of prompt or answer once, with how often the answer has it. Empty for rows that don't penalise.
        self.history = SparseRows(max_rows, np.int32)

    @property
    def max_rows(self) -> int:
        """Rows that a batch may hold."""
        return len(self.temperature)


def _widened(matrix: np.ndarray, width: int) -> np.ndarray:
    wider = np.zeros((matrix.shape[0], width), matrix.dtype)
    wider[:, : matrix.shape[1]] = matrix
    return wider
