"""Sampling as a step of many rows needs it: one case for each kind of row."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.sample_tokens import Columns, sample_tokens
from headrace_kernels.sample_tokens.gpu import DeviceColumns, sample_on_gpu

KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "temperature": {"temperature": 0.8},
    "top-k 50": {"temperature": 0.8, "top_k": 50},
    "top-p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "typical 0.9": {"temperature": 0.8, "typical_p": 0.9},
    "min-p 0.05": {"temperature": 0.8, "min_p": 0.05},
    "all filters": {"temperature": 0.8, "top_k": 50, "typical_p": 0.95, "top_p": 0.9, "min_p": 0.02},
    "penalties, as they begin": {"repetition_penalty": 1.2, "frequency_penalty": 0.2, "history": True},
    "top-n 5": {"top_n": 5},
}

CHECKED = 8  # rows that are compared: where there is no C++, the definition takes tens of milliseconds for each


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    """One row, which must use the whole chip, and many."""
    vocab_size = 1000 if tiny else 128256
    for rows in (2,) if tiny else (1, 256):
        logits = _logits(rows, vocab_size, device)
        for name, parameters in KINDS.items():
            yield _case(f"sample_tokens: {name}, {rows} x {vocab_size}", logits, parameters)


def _logits(rows: int, vocab_size: int, device: torch.device) -> Tensor:
    """Normal ones, and 20 of each row above them."""
    logits = random(rows, vocab_size, device=device, scale=2.5)
    logits[:, :: vocab_size // 20] += 10
    return logits


def _case(name: str, logits: Tensor, parameters: dict[str, Any]) -> Case:
    num_rows, vocab_size = logits.shape
    rows, columns = np.arange(num_rows), _columns(num_rows, vocab_size, parameters)
    there = DeviceColumns(num_rows, vocab_size, logits.device)
    there.put(rows, columns)

    checked = min(num_rows, CHECKED)

    def run() -> tuple[Tensor, Tensor]:
        if "history" in parameters:
            there.put(rows, columns)  # the call before has counted its tokens
        samples = sample_on_gpu(logits, rows, rows, columns, there)
        return samples.ids[:checked], samples.top_ids[: checked * parameters.get("top_n", 0)]

    def reference() -> tuple[Tensor, Tensor]:
        some = rows[:checked]
        samples = sample_tokens(
            logits[:checked].cpu().numpy().copy(), some, some, _columns(num_rows, vocab_size, parameters)
        )
        return torch.from_numpy(samples.ids).to(logits.device), torch.from_numpy(samples.top_ids).to(logits.device)

    return Case(name, run, reference, bytes=nbytes(logits), flops=0, tolerance=0.0)


def _columns(num_rows: int, vocab_size: int, parameters: dict[str, Any]) -> Columns:
    columns = Columns(num_rows)
    columns.top_k[:] = vocab_size
    columns.seed[:] = np.arange(num_rows)
    for column in (columns.typical_p, columns.top_p, columns.repetition_penalty):
        column[:] = 1
    for name, value in parameters.items():
        if name != "history":
            getattr(columns, name)[:] = value
    if "history" in parameters:
        for row in range(num_rows):
            columns.history.put(row, np.arange(row, row + 300), np.arange(300) % 3)
    return columns
