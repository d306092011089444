"""Calls of sampling that launch all of its kernels, on tensors of device "meta"."""

import re

import numpy as np
import torch

from headrace_kernels.gpu.ahead import compiling
from headrace_kernels.ops import gumbel_noise
from headrace_kernels.sample_tokens import Columns
from headrace_kernels.sample_tokens.gpu import DeviceColumns, sample_on_gpu

META = torch.device("meta")
EXACT = ("edit_kernel", "scan_kernel", "_noise_kernel")
FUSED_BY_HAND = ("weigh_kernel", "choose_kernel")
"""Exact, too, but their exponentials are sums and products that the source fuses."""


def everything() -> None:
    """A greedy row, one with temperature, one with top-p alone, one with all there is; bfloat16 logits."""
    vocab_size, rows = 49152, np.arange(4)
    columns = Columns(4)
    columns.temperature[1:] = 1
    columns.top_k[:] = vocab_size
    columns.top_p[:] = columns.typical_p[:] = columns.repetition_penalty[:] = 1
    columns.top_p[2:] = 0.9
    columns.top_k[3], columns.typical_p[3], columns.min_p[3], columns.top_n[3] = 40, 0.9, 0.1, 5
    columns.history.put(3, np.array([1, 5]), np.array([0, 1]))
    columns.biases.put(3, np.array([3]), np.array([1.0], np.float32))
    there = DeviceColumns(4, vocab_size, META)
    there.put(rows, columns)
    logits = torch.empty(4, vocab_size, dtype=torch.bfloat16, device=META)
    masks = torch.empty(1, vocab_size // 32, dtype=torch.int32, device=META)
    sample_on_gpu(logits, rows, rows, columns, there, masks=masks, mask_at=np.array([-1, 0, -1, -1]))


def round_as_the_source_says() -> None:
    """Edits, quotients and noise: every product is rounded before it is added, and no division is approximate."""
    with compiling("sm_90") as compiled:
        everything()
        gumbel_noise(torch.empty(1, dtype=torch.int64, device=META), torch.empty(1, dtype=torch.int64, device=META), 64)
    exact = [kernel for kernel in compiled.kernels if kernel.metadata.name in EXACT]
    assert len(exact) == len(EXACT)
    by_hand = [kernel for kernel in compiled.kernels if kernel.metadata.name in FUSED_BY_HAND]
    assert {kernel.metadata.name for kernel in by_hand} == set(FUSED_BY_HAND)
    for kernel in (*exact, *by_hand):
        assert not kernel.metadata.enable_fp_fusion, kernel.metadata.name
    for kernel in exact:
        found = re.search(r"\b(fma|mad)\.\w*\.?f32|div\.(full|approx)|\.ftz", kernel.asm["ptx"])
        assert found is None, f"{kernel.metadata.name}: {found}"
