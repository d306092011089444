"""Calls the C++ `sample_tokens`: columns.h declares the same two structures."""

import ctypes
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.errors import ArgumentError
from headrace_kernels.native import INT, INT32, POINTER, Kernel, num_threads
from headrace_kernels.sample_tokens.checks import explain_values
from headrace_kernels.sample_tokens.columns import Columns, Floats, Ints, SparseRows
from headrace_kernels.sample_tokens.samples import Samples, empty_samples

_sample_tokens = Kernel("sample_tokens", POINTER, POINTER, INT32)

_PARAMETERS = (
    *("temperature", "top_k", "typical_p", "top_p", "min_p"),
    *("repetition_penalty", "frequency_penalty", "presence_penalty"),
    *("seed", "logprobs", "top_n"),
)


class _SparseRows(ctypes.Structure):
    _fields_ = (("ids", POINTER), ("values", POINTER), ("lengths", POINTER), ("width", INT))

    def __init__(self, rows: SparseRows) -> None:
        super().__init__(rows.ids.ctypes.data, rows.values.ctypes.data, rows.lengths.ctypes.data, rows.width)


class _Columns(ctypes.Structure):
    _fields_ = (
        ("num_rows", INT),
        *((name, POINTER) for name in _PARAMETERS),
        *(("biases", _SparseRows), ("history", _SparseRows)),
    )


class _Call(ctypes.Structure):
    _fields_ = (
        *(("logits", POINTER), ("stride", INT), ("num_rows", INT), ("vocab_size", INT)),
        *(("rows", POINTER), ("indices", POINTER)),
        *(("ids", POINTER), ("possible", POINTER), ("logprobs", POINTER)),
        *(("top_starts", POINTER), ("top_ids", POINTER), ("top_logprobs", POINTER)),
        ("kept", POINTER),
    )


def sample_tokens(
    logits: Floats, rows: Ints, indices: Ints, columns: Columns, kept: NDArray[np.bool_] | None
) -> Samples:
    """See `headrace_kernels.sample_tokens`; shapes are checked."""
    top_n = columns.top_n[rows]
    num_top = int(top_n.sum())
    samples = empty_samples(len(rows), max(num_top, 0))
    top_starts = np.cumsum(top_n) - top_n if num_top else None
    if len(rows):
        columns.history.reserve(int(columns.history.lengths[rows].max()) + 1)
    call = _Call(
        logits.ctypes.data, logits.strides[0] // 4, *logits.shape, rows.ctypes.data, indices.ctypes.data,
        samples.ids.ctypes.data, samples.possible.ctypes.data, samples.logprobs.ctypes.data,
        None if top_starts is None else top_starts.ctypes.data,
        samples.top_ids.ctypes.data, samples.top_logprobs.ctypes.data, None if kept is None else kept.ctypes.data,
    )  # fmt: skip
    if not _sample_tokens(ctypes.addressof(call), ctypes.addressof(_structure(columns)), num_threads()):
        raise ArgumentError(explain_values(rows, columns, logits.shape[1]))
    return samples


_structures: WeakKeyDictionary[Columns, _Columns] = WeakKeyDictionary()


def _structure(columns: Columns) -> _Columns:
    """Made once, and again when a sparse column has moved to wider memory."""
    known = _structures.get(columns)
    if known is None or (known.biases.width, known.history.width) != (columns.biases.width, columns.history.width):
        pointers = (getattr(columns, name).ctypes.data for name in _PARAMETERS)
        known = _Columns(columns.max_rows, *pointers, _SparseRows(columns.biases), _SparseRows(columns.history))
        _structures[columns] = known
    return known
