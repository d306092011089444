"""Puts what the healthy rows gave back among all rows of the step, failed ones included."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_server.batch import StepRows
from headrace_server.rows import Rows
from headrace_server.sampling.samples import Samples
from headrace_server.step import Floats, Ints, Step, StepResult


@dataclass(frozen=True, slots=True)
class Report:
    """What a step's result must hold. Taken when the step is launched: when it lands, a row may be somebody else's."""

    rows: Ints  # [rows] in the step's order
    epochs: Ints  # [rows] who held them
    sampling_rows: Ints  # [samples]
    logprobs: NDArray[np.bool_]  # [samples] its log-probability is wanted
    top_n: Ints  # [samples]
    prompt_chunks: dict[int, int]  # row → tokens, of chunks whose log-probabilities are wanted

    @staticmethod
    def of(laid_out: StepRows, rows: Rows) -> "Report":
        """What the rows ask for now."""
        sampling_rows = laid_out.sampling_rows
        return Report(
            laid_out.rows,
            rows.epoch[laid_out.rows],
            sampling_rows,
            rows.sampling.logprobs[sampling_rows],
            rows.sampling.top_n[sampling_rows],
            _asking_chunks(laid_out, rows) if laid_out.num_chunks else {},
        )

    def still_held(self, rows: Rows) -> NDArray[np.bool_]:
        """[rows] Which rows have the holder that they had."""
        return rows.held[self.rows] & (rows.epoch[self.rows] == self.epochs)


def _asking_chunks(laid_out: StepRows, rows: Rows) -> dict[int, int]:
    chunks = laid_out.rows[: laid_out.num_chunks]
    asked = rows.sampling.prompt_logprobs[chunks]
    return dict(zip(chunks[asked].tolist(), laid_out.num_tokens[: len(chunks)][asked].tolist(), strict=True))


def collect(
    step: Step,
    report: Report,
    computed_rows: Ints,
    samples: Samples | None,
    prompt_logprobs: Mapping[int, Floats],
    failures: dict[int, str],
) -> StepResult:
    """The step's result, in the order of all its rows. `samples` are of computed_rows, a subsequence of those that
    sample; None: there are none. `failures` may also name rows that were computed."""
    result = StepResult(step.number, row_errors=failures)
    if report.prompt_chunks:
        result.prompt_logprobs = _prompt_logprobs(report, prompt_logprobs, failures)
    if samples is not None and len(computed_rows) == len(report.sampling_rows):
        result.token_ids, result.logprobs = samples.ids, samples.logprobs
        result.top_ids, result.top_logprobs = samples.top_ids, samples.top_logprobs
    else:
        _place_samples(result, report, computed_rows, samples)
    if failures:
        failed = np.isin(report.sampling_rows, list(failures))
        result.token_ids = np.where(failed, 0, result.token_ids)
        result.logprobs = np.where(failed, np.float32(np.nan), result.logprobs)
    result.logprobs = result.logprobs[report.logprobs]
    return result


def _place_samples(result: StepResult, report: Report, computed_rows: Ints, samples: Samples | None) -> None:
    """Leaves gaps for rows that sample and were not computed."""
    num_top = int(report.top_n.sum())
    result.token_ids = np.zeros(len(report.sampling_rows), np.int64)
    result.logprobs = np.full(len(report.sampling_rows), np.nan, np.float32)
    result.top_ids = np.zeros(num_top, np.int64)
    result.top_logprobs = np.full(num_top, np.nan, np.float32)
    if samples is None:
        return
    present = np.isin(report.sampling_rows, computed_rows)
    result.token_ids[present] = samples.ids
    result.logprobs[present] = samples.logprobs
    top_present = np.repeat(present, report.top_n)
    result.top_ids[top_present] = samples.top_ids
    result.top_logprobs[top_present] = samples.top_logprobs


def _prompt_logprobs(report: Report, values: Mapping[int, Floats], failures: dict[int, str]) -> Floats:
    """Of the chunks that asked, one after the other; NaN for those of failed rows."""
    parts = [np.empty(0, np.float32)]
    for row, num_tokens in report.prompt_chunks.items():
        missing = np.full(num_tokens, np.nan, np.float32)
        parts.append(missing if row in failures else values.get(row, missing))
    return np.concatenate(parts)
