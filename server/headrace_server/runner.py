"""Runs steps: rows → batch → model → samples → rows. All of it happens on the model thread, one step at a time."""

import time

import numpy as np
import torch

from headrace_server.attention.paged import PagedAttention
from headrace_server.batch import Batch, StepRows, build_batch, find_failures, lay_out
from headrace_server.errors import ProtocolError
from headrace_server.kv_cache import KvPool, allocate_pool
from headrace_server.log import LOGGER
from headrace_server.models.llama import Llama
from headrace_server.prompt_logprobs import prompt_logprobs
from headrace_server.results import Computed, collect
from headrace_server.rows import Rows
from headrace_server.sampling.on_torch.sampler import sample_with_torch
from headrace_server.sampling.samples import Samples
from headrace_server.step import Filter, Step, StepResult

IMPOSSIBLE = "the model's logits are not finite, so no token can be chosen"


class Runner:
    """A model, its KV pool and the rows that run. `prepare` comes before the first step."""

    def __init__(self, model: Llama, backend: PagedAttention, dtype: torch.dtype, device: torch.device) -> None:
        self.model = model
        self.backend = backend
        self.dtype = dtype
        self.device = device
        self.served_positions = 0
        self._pool = KvPool((), 0)
        self._rows = Rows(0, model.config.vocab_size, device)

    def free_pool(self) -> None:
        """Give the pool's memory back."""
        self._pool = KvPool((), 0)

    def prepare(self, num_blocks: int, max_rows: int, served_positions: int) -> None:
        """Allocate the pool, for rows of at most `served_positions` tokens."""
        self._pool = allocate_pool(self.backend, len(self.model.config.layers), num_blocks, self.dtype)
        self.served_positions = served_positions
        self.model.serve(served_positions)
        self._rows = Rows(max_rows, self.model.config.vocab_size, self.device)

    def reset(self) -> None:
        """A new session: nobody holds a row. What the blocks hold means nothing any more."""
        self._rows = Rows(self._rows.max_rows, self.model.config.vocab_size, self.device)

    def filter(self, ended: Filter) -> None:
        """Forget the sampling state of rows whose epoch ended."""
        self._rows.filter(ended)

    def fail_all(self, why: str) -> None:
        """A message could not be read, and any row may have been in it."""
        for row in np.flatnonzero(self._rows.held).tolist():
            self._rows.fail(row, why)

    @torch.inference_mode()
    def execute(self, step: Step) -> StepResult:
        """Run one step. Never raises: what fails is in the result, and the rows that it left undefined stay failed."""
        laid_out = None
        try:
            for new in step.new_rows:
                self._rows.admit(new)
            laid_out = lay_out(step, self._rows)
            self._pool.copy_blocks(step.copies)
            return self._run(step, laid_out)
        except ProtocolError as error:
            return self._failed(step, str(error))
        except Exception as error:  # a kernel, out of memory, a bug: the process and its other rows go on
            LOGGER.exception("step %d failed", step.number)
            return self._failed(step, f"{type(error).__name__}: {error}", laid_out)

    def _run(self, step: Step, laid_out: StepRows) -> StepResult:
        rows = self._rows
        failures = find_failures(laid_out, rows, self.backend.block_size, self._pool.num_blocks, self.served_positions)
        for row, why in failures.items():
            rows.fail(row, why)
        healthy = laid_out if not failures else laid_out.take(~np.isin(laid_out.rows, list(failures)))
        computed = self._compute(healthy) if len(healthy.rows) else Computed(None, {}, 0, 0)
        failures |= self._impossible(healthy, computed.samples)
        result = collect(step, laid_out, healthy, computed, failures, rows.sampling)
        rows.advance(laid_out.rows, laid_out.num_tokens, laid_out.sampling)
        return result

    def _compute(self, laid_out: StepRows) -> Computed:
        """Forward pass and sampling of rows that are known to be computable."""
        began = time.perf_counter_ns()
        batch = build_batch(laid_out, self._rows, self.backend.block_size, self.device)
        hidden = self.model(batch.token_ids, batch.positions, self._pool.layers, batch.attention)
        prompts = prompt_logprobs(self.model, hidden, laid_out, self._rows)
        if not laid_out.sampling.any():
            return Computed(None, prompts, _us_since(began), 0)
        logits = self._logits(hidden, batch)
        forwarded = time.perf_counter_ns()
        samples = self._sample(logits, laid_out)
        return Computed(samples, prompts, (forwarded - began) // 1000, _us_since(forwarded))

    def _logits(self, hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Only of the rows that sample; a step of decodes alone needs no selection."""
        all_sample = len(batch.last_tokens) == len(hidden)
        return self.model.logits(hidden if all_sample else hidden[batch.last_tokens])

    def _sample(self, logits: torch.Tensor, laid_out: StepRows) -> Samples:
        rows = laid_out.rows[laid_out.sampling]
        indices = self._rows.known[rows] - self._rows.prompt[rows]
        drawn = sample_with_torch(logits, rows, indices, self._rows.sampling)
        self._rows.last_token[torch.from_numpy(rows).to(self.device)] = drawn.ids
        return drawn.on_host()

    def _impossible(self, healthy: StepRows, samples: Samples | None) -> dict[int, str]:
        """Rows that could not sample fail from here on."""
        if samples is None or bool(samples.possible.all()):
            return {}
        rows = healthy.rows[healthy.sampling][~samples.possible].tolist()
        for row in rows:
            self._rows.fail(row, IMPOSSIBLE)
        return dict.fromkeys(rows, IMPOSSIBLE)

    def _failed(self, step: Step, why: str, laid_out: StepRows | None = None) -> StepResult:
        """The whole step failed: every row of it that is held fails until a new request takes it."""
        rows = self._rows
        named = np.concatenate((step.chunk_rows, step.decode_rows))
        for row in np.unique(named[named < rows.max_rows]).tolist():
            if rows.held[row]:
                rows.fail(row, f"step {step.number} failed: {why}")
        if laid_out is not None:
            rows.advance(laid_out.rows, laid_out.num_tokens, laid_out.sampling)
        return StepResult(step.number, error=why)


def _us_since(began_ns: int) -> int:
    return (time.perf_counter_ns() - began_ns) // 1000
