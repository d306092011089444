"""Runs steps: rows → batch → model → samples → rows. All of it happens on the model thread, one step at a time."""

import numpy as np

from headrace_server.batch import StepRows, find_failures, lay_out
from headrace_server.compute.interface import Compute, Computed, PoolPlan
from headrace_server.errors import ProtocolError
from headrace_server.log import LOGGER
from headrace_server.models.config import ModelConfig
from headrace_server.results import collect
from headrace_server.rows import Rows
from headrace_server.sampling.samples import Samples
from headrace_server.step import Filter, Step, StepResult

IMPOSSIBLE = "the model's logits are not finite, so no token can be chosen"
NO_POOL = PoolPlan(0, 0, 0, 0)


class Runner:
    """Who computes, and the rows that run. `prepare` comes before the first step."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self._plan = NO_POOL
        self._rows = Rows(0, self.config.vocab_size)

    @property
    def config(self) -> ModelConfig:
        return self.compute.config

    def free_pool(self) -> None:
        """Give the pool's memory back."""
        self._plan = NO_POOL
        self.compute.free_pool()

    def prepare(self, plan: PoolPlan) -> None:
        """Allocate the pool."""
        self.compute.prepare(plan)
        self._plan = plan
        self._rows = Rows(plan.max_rows, self.config.vocab_size)

    def reset(self) -> None:
        """A new session: nobody holds a row. What the blocks hold means nothing any more."""
        self._rows = Rows(self._rows.max_rows, self.config.vocab_size)

    def filter(self, ended: Filter) -> None:
        """Forget the sampling state of rows whose epoch ended."""
        self._rows.filter(ended)

    def fail_all(self, why: str) -> None:
        """A message could not be read, and any row may have been in it."""
        for row in np.flatnonzero(self._rows.held).tolist():
            self._rows.fail(row, why)

    def execute(self, step: Step) -> StepResult:
        """Run one step. Never raises: what fails is in the result, and the rows that it left undefined stay failed."""
        laid_out = None
        try:
            for new in step.new_rows:
                self._rows.admit(new)
            laid_out = lay_out(step, self._rows)
            self.compute.copy_blocks(step.copies)
            return self._run(step, laid_out)
        except ProtocolError as error:
            return self._failed(step, str(error))
        except Exception as error:  # a kernel, out of memory, a bug: the process and its other rows go on
            LOGGER.exception("step %d failed", step.number)
            return self._failed(step, f"{type(error).__name__}: {error}", laid_out)

    def _run(self, step: Step, laid_out: StepRows) -> StepResult:
        rows, plan = self._rows, self._plan
        failures = find_failures(laid_out, rows, self.compute.block_size, plan.num_blocks, plan.served_positions)
        for row, why in failures.items():
            rows.fail(row, why)
        healthy = laid_out if not failures else laid_out.take(~np.isin(laid_out.rows, list(failures)))
        computed = self.compute.compute(healthy, rows) if len(healthy.rows) else Computed(None, {}, 0, 0)
        failures |= self._impossible(healthy, computed.samples)
        result = collect(step, laid_out, healthy, computed, failures, rows.sampling)
        rows.advance(laid_out.rows, laid_out.num_tokens, laid_out.sampling)
        return result

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
