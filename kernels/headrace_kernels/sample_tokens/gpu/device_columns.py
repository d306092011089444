"""`Columns` on the device: what the kernels read of every row, and the counts that they keep themselves."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from headrace_kernels.sample_tokens.columns import Columns, Ints, SparseRows

# A row's parameters are 32-bit words; these are their places.
TEMPERATURE = tl.constexpr(0)
TOP_K = tl.constexpr(1)
TYPICAL_P = tl.constexpr(2)
TOP_P = tl.constexpr(3)
LOG_MIN_P = tl.constexpr(4)  # −∞: off
REPETITION = tl.constexpr(5)
FREQUENCY = tl.constexpr(6)
PRESENCE = tl.constexpr(7)
SEED_LOW = tl.constexpr(8)
SEED_HIGH = tl.constexpr(9)
COUNTS = tl.constexpr(10)  # the row's place in `counts`, or −1
BIASES = tl.constexpr(11)  # the row's place in `bias_ids` and `bias_values`, or −1
NUM_BIASES = tl.constexpr(12)
WORDS = tl.constexpr(16)

FIRST_WIDTH = 64  # biases of a row; doubled when one has more

Upload = Callable[[Sequence[NDArray]], list[Tensor]]
"""Host arrays to tensors on the device, each at a multiple of 16 bytes: Triton compiles a kernel anew for less."""


class DeviceColumns:
    """The device's copy of rows of `Columns`, made by `put`.

    parameters   [max_rows, WORDS] int32
    counts       [places, vocab_size] int32: of a row that penalises 0 for a token that did not occur, else 1 + how
                 often the answer has it. The kernels count on from what `put` wrote
    bias_ids     [places, width] int32; bias_values: the same in float32

    `counts` and biases hold as many places as rows needed at once so far, doubled when one more does: 512 KB of counts
    for a row that penalises, with a vocabulary of 128k.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device, upload: Upload | None = None) -> None:
        """`upload`: how arrays get to the device; None: one by one, waiting for each."""
        self.vocab_size = vocab_size
        self.upload = upload or (lambda arrays: [torch.from_numpy(array).to(device) for array in arrays])
        self.parameters = torch.zeros(max_rows, WORDS.value, dtype=torch.int32, device=device)
        self.counts = torch.zeros(0, vocab_size, dtype=torch.int32, device=device)
        self.bias_ids = torch.zeros(0, FIRST_WIDTH, dtype=torch.int32, device=device)
        self.bias_values = torch.zeros(0, FIRST_WIDTH, device=device)
        self._counting, self._biased = _Places(), _Places()

    def put(self, rows: Ints, columns: Columns) -> None:
        """Take over these rows from the host's columns, with their histories and biases. Waits for nothing."""
        self.release(rows)
        words = _words(rows, columns, self.vocab_size)
        self._put_counts(rows, columns.history, words)
        self._put_biases(rows, columns.biases, words)
        index, there = self.upload([rows, words])
        self.parameters.index_copy_(0, index, there)

    def release(self, rows: Ints) -> None:
        """Nobody holds these rows: their counts and biases may go to others."""
        for row in rows.tolist():
            self._counting.give_back(row)
            self._biased.give_back(row)

    def _put_counts(self, rows: Ints, history: SparseRows, words: np.ndarray) -> None:
        which = np.flatnonzero(history.lengths[rows])
        if not len(which):
            return
        places = self._counting.take(rows[which])
        words[which, COUNTS.value] = places
        self.counts = _grown(self.counts, self._counting.size, self.vocab_size)
        owner, tokens, times = _entries(history, rows[which])
        zeroed, at, index, values = self.upload([places, places[owner], tokens.astype(np.int64), times + 1])
        self.counts.index_fill_(0, zeroed, 0)
        self.counts.index_put_((at, index), values)

    def _put_biases(self, rows: Ints, biases: SparseRows, words: np.ndarray) -> None:
        which = np.flatnonzero(biases.lengths[rows])
        if not len(which):
            return
        places = self._biased.take(rows[which])
        words[which, BIASES.value] = places
        longest, width = int(biases.lengths[rows].max()), self.bias_ids.shape[1]
        width = width if longest <= width else max(longest, 2 * width)
        self.bias_ids = _grown(self.bias_ids, self._biased.size, width)
        self.bias_values = _grown(self.bias_values, self._biased.size, width)
        owner, tokens, values = _entries(biases, rows[which])
        order = np.arange(len(owner)) - np.searchsorted(owner, owner)  # among the row's own
        at, index, ids, added = self.upload([places[owner], order, tokens, values])
        self.bias_ids.index_put_((at, index), ids)
        self.bias_values.index_put_((at, index), added)


class _Places:
    """Numbers from 0 on, each given to one row at a time."""

    def __init__(self) -> None:
        self.size = 0  # all numbers given so far are below
        self._of: dict[int, int] = {}
        self._free: list[int] = []

    def take(self, rows: Ints) -> Ints:
        for row in rows.tolist():
            if not self._free:
                self._free.append(self.size)
                self.size += 1
            self._of[row] = self._free.pop()
        return np.array([self._of[row] for row in rows.tolist()], np.int64)

    def give_back(self, row: int) -> None:
        if row in self._of:
            self._free.append(self._of.pop(row))


def _words(rows: Ints, columns: Columns, vocab_size: int) -> np.ndarray:
    words = np.zeros((len(rows), WORDS.value), np.int32)
    with np.errstate(divide="ignore"):
        log_min_p = np.log(columns.min_p[rows].astype(np.float64)).astype(np.float32)
    for word, values in (
        (TEMPERATURE, columns.temperature[rows]),
        (TYPICAL_P, columns.typical_p[rows]),
        (TOP_P, columns.top_p[rows]),
        (LOG_MIN_P, log_min_p),
        (REPETITION, columns.repetition_penalty[rows]),
        (FREQUENCY, columns.frequency_penalty[rows]),
        (PRESENCE, columns.presence_penalty[rows]),
    ):
        words[:, word.value] = _bits_of(values)
    words[:, TOP_K.value] = np.minimum(columns.top_k[rows], vocab_size)
    words[:, SEED_LOW.value : SEED_HIGH.value + 1] = _bits_of(columns.seed[rows]).reshape(-1, 2)
    words[:, [COUNTS.value, BIASES.value]] = -1
    words[:, NUM_BIASES.value] = columns.biases.lengths[rows]
    return words


def _entries(sparse: SparseRows, rows: Ints) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(which of `rows`, token, value) of all that these rows have, row by row."""
    lengths = sparse.lengths[rows]
    longest = int(lengths.max())
    present = np.arange(longest) < lengths[:, None]
    return np.nonzero(present)[0], sparse.ids[rows, :longest][present], sparse.values[rows, :longest][present]


def _grown(matrix: Tensor, rows: int, width: int) -> Tensor:
    """`matrix`, or a larger copy with room for so many rows and columns."""
    if rows <= matrix.shape[0] and width <= matrix.shape[1]:
        return matrix
    rows = matrix.shape[0] if rows <= matrix.shape[0] else max(rows, 2 * matrix.shape[0])
    larger = torch.zeros(rows, max(width, matrix.shape[1]), dtype=matrix.dtype, device=matrix.device)
    larger[: matrix.shape[0], : matrix.shape[1]] = matrix
    return larger


def _bits_of(values: np.ndarray) -> np.ndarray:
    """float32 or int64 seen as int32 words."""
    return np.ascontiguousarray(values).view(np.int32)
