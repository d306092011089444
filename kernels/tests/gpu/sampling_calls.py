"""Calls of sampling that launch all of its kernels, on tensors of device "meta"."""

import numpy as np
import torch

from headrace_kernels.ops import gumbel_noise
from headrace_kernels.sample_tokens import Columns
from headrace_kernels.sample_tokens.gpu import DeviceColumns, sample_on_gpu

META = torch.device("meta")


def sample(vocab_size: int, dtype: torch.dtype, asks: bool) -> None:
    """A greedy row, one with temperature, one with top-p alone, one with every filter; `asks`: with edits and reports."""
    columns = Columns(4)
    columns.temperature[1:] = 1
    columns.top_k[:] = vocab_size
    columns.top_p[:] = columns.typical_p[:] = columns.repetition_penalty[:] = 1
    columns.top_p[2:] = 0.9
    columns.top_k[3], columns.typical_p[3], columns.min_p[3] = 40, 0.9, 0.1
    options: dict = {}
    if asks:
        columns.top_n[3] = 5
        columns.history.put(3, np.array([1, 5]), np.array([0, 1]))
        columns.biases.put(3, np.array([3]), np.array([1.0], np.float32))
        masks = torch.empty(1, -(-vocab_size // 32), dtype=torch.int32, device=META)
        options = {"masks": masks, "mask_at": np.array([-1, 0, -1, -1])}
    rows = np.arange(4)
    there = DeviceColumns(4, vocab_size, META)
    there.put(rows, columns)
    sample_on_gpu(torch.empty(4, vocab_size, dtype=dtype, device=META), rows, rows, columns, there, **options)


def everything() -> None:
    """Two vocabularies; noise alone."""
    sample(49152, torch.bfloat16, asks=False)
    sample(128256, torch.float32, asks=True)
    seeds = torch.empty(3, dtype=torch.int64, device=META)
    gumbel_noise(seeds, seeds, 49152)
