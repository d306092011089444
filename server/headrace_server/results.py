"""Puts what the healthy rows gave back among all rows of the step, failed ones included."""

from dataclasses import dataclass

import numpy as np

from headrace_server.batch import StepRows
from headrace_server.sampling.samples import Samples
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Floats, Ints, Step, StepResult


@dataclass(frozen=True, slots=True)
class Computed:
    """What the healthy rows of a step gave."""

    samples: Samples | None  # None: no row samples
    prompt_logprobs: dict[int, Floats]
    forward_us: int
    sampling_us: int


def collect(
    step: Step,
    laid_out: StepRows,
    healthy: StepRows,
    computed: Computed,
    failures: dict[int, str],
    state: SamplingState,
) -> StepResult:
    """The step's result, in the order of all its rows. `failures` also names healthy rows that could not sample."""
    sampling_rows = laid_out.rows[laid_out.sampling]
    result = StepResult(
        step.number,
        prompt_logprobs=_prompt_logprobs(laid_out, computed.prompt_logprobs, failures, state),
        row_errors=failures,
        forward_us=computed.forward_us,
        sampling_us=computed.sampling_us,
    )
    failed = np.isin(sampling_rows, list(failures)) if failures else np.zeros(len(sampling_rows), np.bool_)
    computed_rows = healthy.rows[healthy.sampling]
    _place_samples(result, sampling_rows, computed_rows, computed.samples, state)
    result.token_ids[failed] = 0
    result.logprobs[failed] = np.nan
    result.logprobs = result.logprobs[state.logprobs[sampling_rows]]
    return result


def _place_samples(
    result: StepResult, sampling_rows: Ints, computed_rows: Ints, samples: Samples | None, state: SamplingState
) -> None:
    """Fill the arrays of `sampling_rows` from those of `computed_rows`, a subsequence."""
    top_n = state.top_n[sampling_rows]
    result.token_ids = np.zeros(len(sampling_rows), np.int64)
    result.logprobs = np.full(len(sampling_rows), np.nan, np.float32)
    result.top_ids = np.zeros(int(top_n.sum()), np.int64)
    result.top_logprobs = np.full(int(top_n.sum()), np.nan, np.float32)
    if samples is None:
        return
    present = np.isin(sampling_rows, computed_rows)
    result.token_ids[present] = samples.ids
    result.logprobs[present] = samples.logprobs
    top_present = np.repeat(present, top_n)
    result.top_ids[top_present] = samples.top_ids
    result.top_logprobs[top_present] = samples.top_logprobs


def _prompt_logprobs(
    laid_out: StepRows, values: dict[int, Floats], failures: dict[int, str], state: SamplingState
) -> Floats:
    """Of the chunks that asked, one after the other; NaN for those of failed rows."""
    parts = [np.empty(0, np.float32)]
    for place in range(laid_out.num_chunks):
        row = int(laid_out.rows[place])
        if state.prompt_logprobs[row]:
            missing = np.full(int(laid_out.num_tokens[place]), np.nan, np.float32)
            parts.append(missing if row in failures else values.get(row, missing))
    return np.concatenate(parts)
