"""`python -m headrace_server.sampling.bench`: microseconds a row takes to sample, in C++ and with torch, side by side.

The logits are a file's, or made: normal with a standard deviation of 2.5, and 20 tokens of each row 10 above them.
Each figure is the median of several calls.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch

from headrace_kernels import native
from headrace_server.sampling.on_cpu import sample_on_cpu
from headrace_server.sampling.on_torch.sampler import sample_with_torch
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.sampling.state import SamplingState
from headrace_server.step import Floats

CALLS = 9

KINDS = {
    "greedy": SamplingParameters(),
    "temperature": SamplingParameters(temperature=0.8),
    "top-k 50": SamplingParameters(temperature=0.8, top_k=50),
    "top-p 0.9": SamplingParameters(temperature=0.8, top_p=0.9),
    "min-p 0.05": SamplingParameters(temperature=0.8, min_p=0.05),
    "typical 0.9": SamplingParameters(temperature=0.8, typical_p=0.9),
    "all filters": SamplingParameters(temperature=0.8, top_k=50, top_p=0.9, typical_p=0.95, min_p=0.02),
    "penalties": SamplingParameters(repetition_penalty=1.2, frequency_penalty=0.2, presence_penalty=0.1),
    "log-probability": SamplingParameters(logprobs=True),
    "top-n 5": SamplingParameters(top_n=5),
}


def made_logits(rows: int, vocab_size: int) -> Floats:
    """Of rows that are sure of little."""
    random = np.random.default_rng(0)
    logits = random.standard_normal((rows, vocab_size), np.float32) * np.float32(2.5)
    for row in logits:
        row[random.integers(0, vocab_size, 20)] += 10
    return logits


def seconds(work: Callable[[], object]) -> float:
    """Median time of a call, after one that doesn't count."""
    work()
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def compare(name: str, parameters: SamplingParameters, logits: Floats) -> None:
    """One line. C++ edits the same logits in every call, which changes numbers but no cost; torch needs a copy."""
    rows = np.arange(len(logits))
    prompt = np.random.default_rng(1).integers(0, logits.shape[1], 300)
    states = [SamplingState(len(rows), logits.shape[1]) for _ in range(2)]
    for state in states:
        for row in rows.tolist():
            state.admit(row, parameters, prompt, 100)
    numpy_logits, torch_logits = logits.copy(), torch.from_numpy(logits.copy())
    cpp = seconds(lambda: sample_on_cpu(numpy_logits, rows, rows, states[0])) / len(rows)
    tensors = seconds(lambda: sample_with_torch(torch_logits.clone(), rows, rows, states[1])) / len(rows)
    copying = seconds(torch_logits.clone) / len(rows)
    torch_us = (tensors - copying) * 1e6
    print(f"  {name:16} {cpp * 1e6:9.1f} {torch_us:9.1f} {torch_us / (cpp * 1e6):8.1f}x", flush=True)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace_server.sampling.bench", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument("--vocab-size", type=int, nargs="+", default=[49152, 128256], help="of made logits")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 48], help="default: 1 and 48")
    parser.add_argument("--logits", help="a .npy file, float32 [rows, vocab_size]")
    options = parser.parse_args()
    native.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    for vocab_size in [None] if options.logits else options.vocab_size:
        for rows in options.rows:
            logits = made_logits(rows, vocab_size) if vocab_size else np.load(options.logits)[:rows]
            print(f"\n{len(logits)} rows x {logits.shape[1]}, {options.threads} threads, {native.isa()}")
            print(f"  {'':16} {'C++, µs':>9} {'torch, µs':>9} {'ratio':>9}")
            for name, parameters in KINDS.items():
                compare(name, parameters, logits)


if __name__ == "__main__":
    main()
