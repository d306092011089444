"""The definition of `sample_tokens` in plain numpy: row by row, by sorting, masses in float64."""

import math

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.philox import MASK, philox
from headrace_kernels.sample_tokens.columns import Columns, Floats, Ints
from headrace_kernels.sample_tokens.samples import Samples, empty_samples

NEVER = np.float32(-np.inf)


def sample_tokens(
    logits: Floats, rows: Ints, indices: Ints, columns: Columns, kept: NDArray[np.bool_] | None
) -> Samples:
    """See `headrace_kernels.sample_tokens`."""
    top_n = columns.top_n[rows]
    samples = empty_samples(len(rows), int(top_n.sum()))
    ends = np.cumsum(top_n)
    for place, row in enumerate(rows.tolist()):
        x = logits[place]
        raw = x.copy()
        edit(x, columns, row)
        left = None if columns.temperature[row] == 0 else filtered(x, columns, row)
        if left is not None and kept is not None:
            kept[place] = left > NEVER
        scores = x if left is None else left + noise(int(columns.seed[row]), int(indices[place]), len(x))
        best = scores.max()  # NaN if any is
        samples.possible[place] = np.isfinite(best)
        if samples.possible[place]:
            samples.ids[place] = int(np.argmax(scores))
            if columns.history.lengths[row]:
                columns.history.count(rows[place : place + 1], samples.ids[place : place + 1])
        if columns.logprobs[row] or top_n[place]:
            report(raw, place, slice(int(ends[place] - top_n[place]), int(ends[place])), samples)
    return samples


def edit(x: Floats, columns: Columns, row: int) -> None:
    """Bias and penalties, in place."""
    biased, seen = columns.biases.lengths[row], columns.history.lengths[row]
    np.add.at(x, columns.biases.ids[row, :biased], columns.biases.values[row, :biased])
    tokens, times = columns.history.ids[row, :seen], columns.history.values[row, :seen].astype(np.float32)
    repetition = columns.repetition_penalty[row]
    x[tokens] = np.where(x[tokens] < 0, x[tokens] * repetition, x[tokens] / repetition)
    x[tokens] -= np.where(times > 0, times * columns.frequency_penalty[row] + columns.presence_penalty[row], 0)


def filtered(x: Floats, columns: Columns, row: int) -> Floats:
    """Scores, −∞ for those that may not be sampled."""
    scores = x / columns.temperature[row]
    if not np.isfinite(scores.max()):
        return scores
    if columns.top_k[row] < len(x):
        keep_top_k(scores, int(columns.top_k[row]))
    if columns.typical_p[row] < 1:
        keep_typical(scores, columns.typical_p[row])
    if columns.top_p[row] < 1:
        keep_top_p(scores, columns.top_p[row])
    if columns.min_p[row] > 0:
        scores[scores < scores.max() + np.float32(math.log(columns.min_p[row]))] = NEVER
    return scores


def keep_top_k(scores: Floats, k: int) -> None:
    """Keep the k largest, in place."""
    scores[scores < np.sort(scores)[-k]] = NEVER


def keep_typical(scores: Floats, share: np.float32) -> None:
    """Keep the tokens whose information is nearest to the entropy, until they hold `share`, in place."""
    gap = scores.max() - scores
    mean = np.float32((masses(scores)[scores > NEVER] * gap[scores > NEVER]).sum())
    distance = np.abs(gap - mean)
    scores[distance > distance_at(distance, masses(scores), share)] = NEVER


def keep_top_p(scores: Floats, share: np.float32) -> None:
    """Keep the likeliest tokens until they hold `share`, in place."""
    scores[-scores > distance_at(-scores, masses(scores), share)] = NEVER


def masses(scores: Floats) -> NDArray[np.float64]:
    """Probabilities."""
    weights = np.exp(scores.astype(np.float64) - np.float64(scores.max()))
    return weights / weights.sum()


def distance_at(distance: Floats, mass: NDArray[np.float64], share: np.float32) -> np.float32:
    """The least distance within which there is `share` of the mass."""
    order = np.argsort(distance, kind="stable")
    needed = int((np.cumsum(mass[order]) < np.float64(share)).sum())
    return distance[order[min(needed, len(order) - 1)]]


def noise(seed: int, index: int, vocab_size: int) -> Floats:
    """`gumbel_noise` of one row."""
    quads = np.arange(-(-vocab_size // 4), dtype=np.int64)
    low, high = (np.array(value, np.int64) for value in (seed & MASK, seed >> 32 & MASK))
    counter = (quads, np.full_like(quads, index & MASK), np.full_like(quads, index >> 32 & MASK), quads * 0)
    words = np.stack(philox(counter, (low, high)), axis=-1).reshape(-1)[:vocab_size]
    uniform = ((words >> 9).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)
    return (-np.log(-np.log(uniform.astype(np.float64)))).astype(np.float32)


def report(raw: Floats, place: int, top: slice, samples: Samples) -> None:
    """Log-probabilities of the chosen token, and of as many likeliest ones as `top` has room for."""
    highest = np.float64(raw.max())
    if not np.isfinite(highest):
        return
    logprobs = (raw.astype(np.float64) - (highest + np.log(np.exp(raw - highest).sum()))).astype(np.float32)
    if samples.possible[place]:
        samples.logprobs[place] = logprobs[samples.ids[place]]
    samples.top_ids[top] = np.argsort(-raw, kind="stable")[: top.stop - top.start]
    samples.top_logprobs[top] = logprobs[samples.top_ids[top]]
