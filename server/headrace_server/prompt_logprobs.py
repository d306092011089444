"""Log-probabilities of prompt tokens, for the chunks whose rows asked.

The logits at position p tell of token p + 1, which may come with the next chunk: that one value waits in the row.
The head runs over SLICE positions at a time, so its logits take 128 rows of memory however long the prompt is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace_server.batch import StepRows
from headrace_server.rows import Rows
from headrace_server.step import Floats, Ints

SLICE = 128  # rows of logits


@dataclass(frozen=True, slots=True)
class AskedChunk:
    """One chunk of a row that wants log-probabilities."""

    row: int
    epoch: int
    num_tokens: int
    first_token: int  # where in the batch the chunk begins
    following: Ints  # the prompt's tokens after each of the chunk's; one fewer at the end of the prompt

    def slices(self) -> Iterator[tuple[Ints, Ints]]:
        """(tokens, following): of following[i] the log-probability is wanted, given what the model made of the batch's
        token tokens[i]; at most SLICE at once."""
        for start in range(0, len(self.following), SLICE):
            some = self.following[start : start + SLICE]
            yield np.arange(self.first_token + start, self.first_token + start + len(some)), some


def asked_chunks(laid_out: StepRows, rows: Rows) -> list[AskedChunk]:
    """Before the step counts as computed: prompts are kept until then."""
    if laid_out.num_chunks == 0:
        return []
    ends = np.cumsum(laid_out.num_tokens)
    found = []
    for place in np.flatnonzero(rows.sampling.prompt_logprobs[laid_out.rows[: laid_out.num_chunks]]).tolist():
        row, start, count = (int(column[place]) for column in (laid_out.rows, laid_out.starts, laid_out.num_tokens))
        following = rows.tokens[row][start + 1 : start + count + 1]
        found.append(AskedChunk(row, int(rows.epoch[row]), count, int(ends[place]) - count, following))
    return found


def prompt_logprobs(chunks: list[AskedChunk], told: list[Floats], rows: Rows) -> dict[int, Floats]:
    """Row → one value per position of its chunk, NaN where nothing comes before.

    told[i]: chunk i's values of `following`. Steps come here in their order, for each leaves a value to the next.
    """
    values = {}
    for chunk, known in zip(chunks, told, strict=True):
        before = rows.next_logprob[chunk.row] if rows.next_logprob_epoch[chunk.row] == chunk.epoch else np.nan
        values[chunk.row] = np.concatenate(([before], known[: chunk.num_tokens - 1])).astype(np.float32)
        rows.next_logprob[chunk.row] = known[-1] if len(known) == chunk.num_tokens else np.nan
        rows.next_logprob_epoch[chunk.row] = chunk.epoch
    return values
