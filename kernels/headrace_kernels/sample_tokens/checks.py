"""Checks of arguments: shapes before every call, values only once something was found wrong with them."""

import numpy as np

from headrace_kernels.errors import ArgumentError, out_of_range
from headrace_kernels.sample_tokens.columns import Columns, Floats, Ints


def check_arguments(logits: Floats, rows: Ints, indices: Ints, columns: Columns, kept: np.ndarray | None) -> None:
    """Raise `ArgumentError` unless shapes, dtypes and strides are those of the specification."""
    check_logits(logits)
    check_per_row("rows", rows, len(logits))
    check_per_row("indices", indices, len(logits))
    if kept is not None and (kept.shape != logits.shape or kept.dtype != np.bool_ or not kept.flags.c_contiguous):
        raise ArgumentError(f"kept: expected contiguous bool {list(logits.shape)}, got {kept.dtype} {list(kept.shape)}")
    if len(rows) and (rows.min() < 0 or rows.max() >= columns.max_rows):
        place = int(np.flatnonzero((rows < 0) | (rows >= columns.max_rows))[0])
        raise ArgumentError(out_of_range("rows", str(place), int(rows[place]), 0, columns.max_rows))


def check_logits(logits: Floats) -> None:
    """Float32 [rows, vocabulary], contiguous but for the first axis."""
    if logits.ndim != 2 or logits.dtype != np.float32 or logits.shape[1] < 1:
        raise ArgumentError(f"logits: expected float32 [rows, at least 1], got {logits.dtype} {list(logits.shape)}")
    if logits.size and logits.strides[1] != logits.itemsize and logits.shape[1] > 1:
        raise ArgumentError(f"logits: expected contiguous rows, got strides of {logits.strides} bytes")


def check_per_row(name: str, array: Ints, num_rows: int) -> None:
    """Contiguous int64, one element a row."""
    if array.shape != (num_rows,) or array.dtype != np.int64 or not array.flags.c_contiguous:
        raise ArgumentError(f"{name}: expected contiguous int64 [{num_rows}], got {array.dtype} {list(array.shape)}")


def explain_values(rows: Ints, columns: Columns, vocab_size: int) -> str:
    """The sentence for the first value that can't be worked on."""
    for row in rows.tolist():
        for name, part in (("biases", columns.biases), ("history", columns.history)):
            ids = part.ids[row, : part.lengths[row]]
            outside = np.flatnonzero((ids < 0) | (ids >= vocab_size))
            if len(outside):
                return out_of_range(f"{name}[{row}]", str(outside[0]), int(ids[outside[0]]), 0, vocab_size)
        if columns.top_k[row] < 1:
            return f"top_k[{row}]: expected at least 1, got {columns.top_k[row]}"
        if not 0 <= columns.top_n[row] <= vocab_size:
            return out_of_range("top_n", str(row), int(columns.top_n[row]), 0, vocab_size + 1)
    return "columns: expected values that can be worked on"
