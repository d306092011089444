"""Logits of several shapes, and rows of sampling parameters, for tests of every sampler."""

import numpy as np
from hypothesis import strategies as st

from headrace_kernels.sample_tokens import Columns

OFF = {"temperature": 0, "top_k": 2**40, "typical_p": 1, "top_p": 1, "min_p": 0, "repetition_penalty": 1}
NORMAL = np.random.default_rng(1).standard_normal(128256).astype(np.float32)


def columns_of(*rows: dict) -> Columns:
    """One row for each dict of parameters; `biases` and `history` are dicts of token to value."""
    columns = Columns(len(rows))
    for row, parameters in enumerate(rows):
        for name, value in {**OFF, "seed": row, **parameters}.items():
            if name in ("biases", "history"):
                getattr(columns, name).put(row, np.array(list(value)), np.array(list(value.values())))
            else:
                getattr(columns, name)[row] = value
    return columns


def make_logits(shape: str, size: int, seed: int) -> np.ndarray:
    random = np.roll(NORMAL, seed)[:size].copy()
    if shape == "ties":
        return np.round(random * 2)
    if shape == "equal":
        return np.full(size, random[0])
    if shape == "peaked":
        random[random.argsort()[-5:]] += 20
        return random * 4
    if shape == "masked":
        random[seed % 3 :: 3] = -np.inf
        return random * 4
    if shape == "huge":
        return random * np.float32(1e30)
    return random * 3


SHAPES = ("normal", "ties", "equal", "peaked", "masked", "huge")
SHARES = st.sampled_from([1e-6, 0.1, 0.5, 0.9, 0.99, 0.99999])
ROWS = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0, 1e-5, 0.3, 1, 1.7, 100, 3e38]),
        "top_k": st.sampled_from([1, 2, 7, 50, 3000, 2**40]),
        "typical_p": st.just(1) | SHARES,
        "top_p": st.just(1) | SHARES,
        "min_p": st.sampled_from([0, 1e-30, 0.05, 1]),
        "seed": st.integers(-(2**63), 2**63 - 1),
        "repetition_penalty": st.sampled_from([1, 1.3, 0.5]),
        "frequency_penalty": st.sampled_from([0, 0.4, -1.5]),
        "presence_penalty": st.sampled_from([0, 2.5]),
        "logprobs": st.booleans(),
        "top_n": st.sampled_from([0, 1, 5, 2000]),
        "biased": st.integers(0, 3),
        "seen": st.integers(0, 9),
    }
)


def with_tokens(row: dict, size: int) -> dict:
    """The drawn row with biases and a history that fit the vocabulary."""
    rest = {name: value for name, value in row.items() if name not in ("biased", "seen")}
    tokens = np.random.default_rng(row["seen"]).permutation(size)
    return {
        **rest,
        "top_n": min(row["top_n"], size),
        # Scores that differ by 1e-38 have no order of information.
        "typical_p": row["typical_p"] if row["temperature"] <= 100 else 1,
        "biases": {int(t): float(i) - 1.5 for i, t in enumerate(tokens[: row["biased"]])},
        "history": {int(t): i % 3 for i, t in enumerate(tokens[: row["seen"]])},
    }
