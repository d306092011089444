"""Log-probabilities of prompt tokens, for the chunks whose rows asked.

The logits at position p tell of token p + 1, which may come with the next chunk: that one value waits in the row.
The head runs over SLICE positions at a time, so its logits take 128 rows of memory however long the prompt is.
"""

from collections.abc import Callable

import numpy as np

from headrace_server.batch import StepRows
from headrace_server.rows import Rows
from headrace_server.step import Floats, Ints

SLICE = 128  # rows of logits


def prompt_logprobs(logprobs: Callable[[Ints, Ints], Floats], laid_out: StepRows, rows: Rows) -> dict[int, Floats]:
    """Row → one value per position of its chunk, NaN where nothing comes before.

    logprobs(tokens, following): of following[i], given what the model made of the batch's token tokens[i]; at most
    SLICE at once
    """
    chunks = laid_out.rows[: laid_out.num_chunks]
    asked = np.flatnonzero(rows.sampling.prompt_logprobs[chunks]).tolist()
    ends = np.cumsum(laid_out.num_tokens)
    values = {}
    for place in asked:
        row, start, count = (int(column[place]) for column in (laid_out.rows, laid_out.starts, laid_out.num_tokens))
        following = rows.tokens[row][start + 1 : start + count + 1]
        told = _in_slices(logprobs, np.arange(int(ends[place]) - count, int(ends[place])), following)
        values[row] = np.concatenate(([rows.next_logprob[row]], told[: count - 1])).astype(np.float32)
        rows.next_logprob[row] = told[count - 1] if len(told) == count else np.nan
    return values


def _in_slices(logprobs: Callable[[Ints, Ints], Floats], tokens: Ints, following: Ints) -> Floats:
    """[len(following)]; of `tokens` the first so many are used."""
    parts = [np.empty(0, np.float32)]
    for start in range(0, len(following), SLICE):
        some = following[start : start + SLICE]
        parts.append(logprobs(tokens[start : start + len(some)], some))
    return np.concatenate(parts)
