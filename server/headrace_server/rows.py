"""What the shard knows of every row: how far it is, its last token, and whether it failed."""

import numpy as np

from headrace_server.errors import ProtocolError
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Filter, Ints, NewRow


class Rows:
    """The running batch, row by row. Columns of numbers, so that a step reads and writes all its rows at once.

    Of a held row: positions [0, computed) have their KV; tokens [0, known) are decided, the first `prompt` of them
    given by the client. Between steps computed == known − 1 for a row that decodes, less for one in its prompt.
    `prefilling` from admission until the chunk that reaches the last known token.
    A row that failed is counted on as if nothing had happened, so that the router's later steps still make sense.
    """

    def __init__(self, max_rows: int, vocab_size: int) -> None:
        self.max_rows = max_rows
        self.held = np.zeros(max_rows, np.bool_)
        self.epoch = np.zeros(max_rows, np.int64)
        self.prompt = np.zeros(max_rows, np.int64)
        self.known = np.zeros(max_rows, np.int64)
        self.computed = np.zeros(max_rows, np.int64)
        self.prefilling = np.zeros(max_rows, np.bool_)
        self.failed = np.zeros(max_rows, np.bool_)
        self.skipped = np.zeros(max_rows, np.bool_)  # failed, and on all ranks: nobody computes it any more
        self.failures: dict[int, str] = {}  # row → why, for failed rows
        self.failed_in = np.zeros(max_rows, np.int64)  # the step that failed it; 0: it was never right
        self.tokens: dict[int, Ints] = {}  # row → token ids, while it is prefilling
        # Of the prompt token after the last chunk that landed, and the epoch that it was computed in. When it lands,
        # the row may have no holder any more, or the next one.
        self.next_logprob = np.full(max_rows, np.nan, np.float32)
        self.next_logprob_epoch = np.zeros(max_rows, np.int64)
        self.sampling = SamplingState(max_rows, vocab_size)
        self._vocab_size = vocab_size

    def admit(self, new: NewRow) -> None:
        """A request takes the row. One that cannot be computed is held all the same, as failed."""
        row = new.row
        if row >= self.max_rows:
            raise ProtocolError(f"row {row} is not below the {self.max_rows} rows that Warmup agreed")
        self.release(row)
        self.held[row] = self.prefilling[row] = True
        self.epoch[row] = new.epoch
        self.prompt[row] = len(new.token_ids) - new.num_generated
        self.known[row] = len(new.token_ids)
        self.computed[row] = new.num_computed
        self.tokens[row] = new.token_ids
        if problem := self._problem(new):
            self.sampling.report(row, new.sampling)
            self.fail(row, problem)
        else:
            self.sampling.admit(row, new.sampling, new.token_ids, new.num_generated)

    def fail(self, row: int, why: str, step: int = 0, *, alone: bool = False) -> None:
        """From this step on the row only gives errors, until a new request takes it. The first reason stays.

        `alone`: other ranks don't know of it. All must compute the same rows, so this one goes on with it, too.
        """
        self.skipped[row] |= not alone
        if not self.failed[row]:
            self.failed[row], self.failed_in[row] = True, step
            self.failures[row] = why

    def advance(self, rows: Ints, num_tokens: Ints, sampled: np.ndarray) -> None:
        """A step computed num_tokens[i] tokens of rows[i], and sampled one where `sampled`; failed rows count too."""
        self.computed[rows] += num_tokens
        self.known[rows] += sampled
        for row in rows[sampled & self.prefilling[rows]].tolist():
            self.prefilling[row] = False
            self.tokens.pop(row, None)

    def filter(self, ended: Filter) -> None:
        """Forget rows that are still held in the epoch that ended; others belong to somebody else by now."""
        inside = ended.rows < self.max_rows
        for row, epoch in zip(ended.rows[inside].tolist(), ended.epochs[inside].tolist(), strict=True):
            if self.held[row] and self.epoch[row] == epoch:
                self.release(row)

    def release(self, row: int) -> None:
        """Nobody holds the row."""
        self.held[row] = self.failed[row] = self.skipped[row] = False
        self.failures.pop(row, None)
        self.tokens.pop(row, None)
        self.sampling.release(row)

    def _problem(self, new: NewRow) -> str | None:
        num_tokens = len(new.token_ids)
        if num_tokens == 0:
            return "the request has no tokens; send at least one"
        if new.num_generated >= num_tokens:
            return f"num_generated {new.num_generated} leaves no prompt among {num_tokens} tokens"
        if new.num_computed >= num_tokens:
            return f"num_computed {new.num_computed} leaves nothing to compute of {num_tokens} tokens"
        if (highest := int(new.token_ids.max())) >= self._vocab_size:
            return f"token id {highest} is outside the vocabulary of {self._vocab_size}"
        return new.sampling.problem(self._vocab_size)
