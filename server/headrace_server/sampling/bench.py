"""`python -m headrace_server.sampling.bench`: microseconds a row takes to sample, in C++ and on a GPU.

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


def on_host(logits: Floats, parameters: SamplingParameters) -> float:
    """Seconds a row, in C++. It edits the same logits in every call, which changes numbers but no cost."""
    rows, state, edited = np.arange(len(logits)), _state(logits, parameters), logits.copy()
    return seconds(lambda: sample_on_cpu(edited, rows, rows, state)) / len(rows)


def on_gpu(logits: Floats, parameters: SamplingParameters) -> float:
    """Seconds a row on the GPU, until the ids are on the host."""
    from headrace_server.sampling.on_gpu import DeviceSampler

    rows, state, there = np.arange(len(logits)), _state(logits, parameters), torch.from_numpy(logits).cuda()
    sampler = DeviceSampler(len(rows), logits.shape[1], there.device)
    last_token = torch.zeros(len(rows), dtype=torch.int64, device=there.device)
    return seconds(lambda: sampler.sample(there, rows, rows, state, last_token).ids.cpu()) / len(rows)


def _state(logits: Floats, parameters: SamplingParameters) -> SamplingState:
    state = SamplingState(*logits.shape)
    prompt = np.random.default_rng(1).integers(0, logits.shape[1], 300)
    for row in range(len(logits)):
        state.admit(row, parameters, prompt, 100)
    return state


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
    samplers = {"C++": on_host} | ({"GPU": on_gpu} if torch.cuda.is_available() else {})
    for vocab_size in [None] if options.logits else options.vocab_size:
        for rows in options.rows:
            logits = made_logits(rows, vocab_size) if vocab_size else np.load(options.logits)[:rows]
            print(f"\n{len(logits)} rows x {logits.shape[1]}, {options.threads} threads, {native.isa()}")
            print(f"  {'':16}" + "".join(f" {name + ', µs':>9}" for name in samplers))
            for name, parameters in KINDS.items():
                figures = (sampler(logits, parameters) * 1e6 for sampler in samplers.values())
                print(f"  {name:16}" + "".join(f" {figure:9.1f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
