"""Runs steps: rows → batch → model → samples → rows.

Steps are launched on the model thread, one after the other. Where the device works on while the host does something
else, a step is landed by another thread, and the next one is launched before that: sampled tokens stay on the device.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from headrace_server.batch import Pool, StepRows, find_failures, lay_out
from headrace_server.compute.interface import Compute, Computed, Launched, PoolPlan
from headrace_server.distributed.collective import Act, agree
from headrace_server.errors import LostDevice, ProtocolError, ShortOfMemory, first_line, lacks_memory, report
from headrace_server.log import LOGGER
from headrace_server.models.config import ModelConfig
from headrace_server.prompt_logprobs import AskedChunk, asked_chunks, prompt_logprobs
from headrace_server.results import Report, collect
from headrace_server.rows import Rows
from headrace_server.sampling.samples import Samples
from headrace_server.step import Filter, Ints, Step, StepResult

IMPOSSIBLE = "the model's logits are not finite, so no token can be chosen"
NO_POOL = Pool(0, 0, 0)
NOTHING = Computed(None, [], 0, 0)

Landing = Callable[[], StepResult]
"""Waits for a launched step's end. Once, steps in their order; any thread."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A step between launch and landing."""

    step: Step
    rows: Rows
    laid_out: StepRows
    healthy: StepRows
    asked: list[AskedChunk]
    report: Report
    failures: dict[int, str]  # known at launch
    launched: Launched | None  # None: no row could be computed


class Runner:
    """Who computes, and the rows that run. `prepare` comes before the first step."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self._pool = NO_POOL
        self._rows = Rows(0, self.config.vocab_size)
        self._lock = threading.Lock()  # of the rows: the thread that lands looks at them too

    @property
    def config(self) -> ModelConfig:
        return self.compute.config

    @property
    def waits_for_ranks(self) -> bool:
        """For others, not for its own device. Any thread may ask."""
        return self.compute.collective.waits

    @property
    def _several(self) -> bool:
        return self.compute.collective.world_size > 1

    def free_pool(self) -> None:
        """Give the pool's memory back."""
        self._pool = NO_POOL
        self.compute.free_pool()

    def prepare(self, plan: PoolPlan) -> None:
        """Allocate the pool."""
        self.compute.prepare(plan)
        self._pool = Pool(self.compute.block_size, plan.num_blocks, plan.served_positions)
        self._rows = Rows(plan.max_rows, self.config.vocab_size)

    def reset(self) -> None:
        """A new session: nobody holds a row. What the blocks hold means nothing any more."""
        self._rows = Rows(self._rows.max_rows, self.config.vocab_size)

    def filter(self, ended: Filter) -> None:
        """Forget the sampling state of rows whose epoch ended."""
        with self._lock:
            self._rows.filter(ended)

    def fail_all(self, step: int, why: str) -> None:
        """A step's message could not be read, and any row may have been in it."""
        with self._lock:
            for row in np.flatnonzero(self._rows.held).tolist():
                self._rows.fail(row, f"step {step} could not be read: {why}", step)

    def improve(self) -> bool:
        """Use a quiet moment to make later steps faster. False: there is nothing more to do."""
        if not self.compute.collective.same((Act.IMPROVE,)):
            return True  # it is not quiet everywhere
        try:
            return self.compute.improve()
        except Exception as error:
            self.compute.collective.give_up(error)  # one that is alone raises it
            raise

    def agree(self, act: Act, *details: int, wanted: Callable[[], bool]) -> bool:
        """Wait until every rank is about to do this. False once it is not wanted any more."""
        return agree(self.compute.collective, (act, *details), wanted)

    def execute(self, step: Step) -> StepResult:
        """Run one step to its end."""
        return self.launch(step)()

    def launch(self, step: Step) -> Landing:
        """Begin one step. Never raises: what fails is in the result, and rows that it left undefined stay failed.

        What the message itself makes impossible fails on every rank alike. Where this rank alone has no memory, its
        step fails, and the others' goes on. Where it fails otherwise, they are in the middle of a step that it can't go
        on with, and the process ends.
        """
        laid_out = None
        try:
            with self._lock:
                for new in step.new_rows:
                    self._rows.admit(new)
                laid_out = lay_out(step, self._rows)
                short = self._move_blocks(step)
                failures = self._find_failures(step, laid_out)
            flight = self._launch(step, laid_out, failures, short)
        except ProtocolError as error:
            return _landed(self._failed(step, laid_out, str(error)))
        except Exception as error:  # a kernel, out of memory, a bug: the process and its other rows go on
            why = self._told(step, error, in_step=isinstance(error, ShortOfMemory))
            return _landed(self._failed(step, laid_out, why, lacks_memory(error)))
        return lambda: self._land(flight)

    def _move_blocks(self, step: Step) -> ShortOfMemory | None:
        """Each rank moves its own. One of several that has no memory for it goes on with what the others wait for, and
        fails the step after that."""
        short = None
        if len(step.swaps_out) or len(step.swaps_back):
            short = self._try(lambda: self.compute.swap(step.swaps_out, step.swaps_back))
        if len(step.copies):
            short = self._try(lambda: self.compute.copy_blocks(step.copies)) or short
        return short

    def _try(self, move: Callable[[], None]) -> ShortOfMemory | None:
        try:
            move()
        except Exception as error:
            if not self._several or not lacks_memory(error):
                raise
            return ShortOfMemory(first_line(error))
        return None

    def _find_failures(self, step: Step, laid_out: StepRows) -> dict[int, str]:
        failures = find_failures(step, laid_out, self._rows, self._pool)
        for row, why in failures.items():
            self._rows.fail(row, why, step.number)
        return failures

    def _launch(self, step: Step, laid_out: StepRows, failures: dict[int, str], short: ShortOfMemory | None) -> _Flight:
        """Without the lock: it may take as long as the step, and the one before it is to land meanwhile. What landing
        changes of a row (whether it failed, its next log-probability) is not looked at here."""
        rows = self._rows
        healthy = laid_out if not failures else laid_out.take(~np.isin(laid_out.rows, list(failures)))
        asked = asked_chunks(healthy, rows)
        launched = self.compute.launch(healthy, asked, rows) if len(healthy.rows) else None
        if short is not None:
            raise short
        flight = _Flight(step, rows, laid_out, healthy, asked, Report.of(laid_out, rows), failures, launched)
        rows.advance(laid_out.rows, laid_out.num_tokens, laid_out.sampling)
        return flight

    def _land(self, flight: _Flight) -> StepResult:
        step, rows = flight.step, flight.rows
        try:
            computed = flight.launched.land() if flight.launched is not None else NOTHING
        except Exception as error:
            with self._lock:
                held = flight.report.rows[flight.report.still_held(rows)]
                why = self._told(step, error, in_step=lacks_memory(error))
                return _fail_step(step, rows, held, why, out_of_memory=lacks_memory(error), alone=self._several)
        with self._lock:
            failures = flight.failures | self._failed_since(flight) | self._impossible(flight, computed.samples)
            prompts = prompt_logprobs(flight.asked, computed.told, rows)
            result = collect(step, flight.report, flight.healthy.sampling_rows, computed.samples, prompts, failures)
        return replace(result, forward_us=computed.forward_us, sampling_us=computed.sampling_us)

    def _failed_since(self, flight: _Flight) -> dict[int, str]:
        """Rows that were found to have failed in the step before, when this one had been launched already. What fails a
        later step, which may have been launched meanwhile, is nothing to this one."""
        rows = flight.rows
        if not rows.failures:
            return {}
        held = flight.report.rows[flight.report.still_held(rows)]
        failed = held[rows.failed[held] & (rows.failed_in[held] < flight.step.number)]
        return {row: rows.failures[row] for row in failed.tolist()}

    def _impossible(self, flight: _Flight, samples: Samples | None) -> dict[int, str]:
        """Rows that could not sample fail from here on. Of several ranks only rank 0 knows."""
        if samples is None or bool(samples.possible.all()):
            return {}
        impossible = flight.healthy.sampling_rows[~samples.possible]
        held = flight.report.rows[flight.report.still_held(flight.rows)]
        for row in np.intersect1d(impossible, held).tolist():
            flight.rows.fail(row, IMPOSSIBLE, flight.step.number, alone=self._several)
        return dict.fromkeys(impossible.tolist(), IMPOSSIBLE)

    def _told(self, step: Step, error: Exception, *, in_step: bool) -> str:
        """Logs why the step failed; its sentence for the router. `in_step`: other ranks did not notice."""
        lost = self._several and not in_step
        if lost or not lacks_memory(error):
            LOGGER.exception("step %d failed", step.number)
        if lost:
            self.compute.collective.give_up(error)  # this does not return
        if not self.compute.usable():
            # Every later step would fail like this one, which a new process need not.
            failure = LostDevice(f"{self.compute.device} has failed for good: {first_line(error)}")
            if self._several:
                self.compute.collective.give_up(failure)
            os._exit(report(failure))
        if not lacks_memory(error):
            return f"{type(error).__name__}: {error}"
        tokens = step.total_tokens
        LOGGER.warning("step %d of %d tokens ran out of memory: %s", step.number, tokens, first_line(error))
        self.compute.relieve()
        return f"out of memory in a step of {tokens} tokens: {first_line(error)}"

    def _failed(self, step: Step, laid_out: StepRows | None, why: str, out_of_memory: bool = False) -> StepResult:
        """The whole step could not be launched."""
        rows = self._rows
        inside = np.unique(step.rows[step.rows < rows.max_rows])
        with self._lock:
            alone = self._several and out_of_memory
            result = _fail_step(step, rows, inside[rows.held[inside]], why, out_of_memory=out_of_memory, alone=alone)
        if laid_out is not None:
            rows.advance(laid_out.rows, laid_out.num_tokens, laid_out.sampling)
        return result


def _fail_step(step: Step, rows: Rows, held: Ints, why: str, *, out_of_memory: bool, alone: bool) -> StepResult:
    """Every row of it that is held fails until a new request takes it. `alone`: of `Rows.fail`."""
    for row in held.tolist():
        rows.fail(row, f"step {step.number} failed: {why}", step.number, alone=alone)
    return StepResult(step.number, error=why, out_of_memory=out_of_memory)


def _landed(result: StepResult) -> Landing:
    return lambda: result
