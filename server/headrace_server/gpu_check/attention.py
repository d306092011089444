"""Attention over shapes that servers see, and beside other libraries where they can be imported."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headrace_kernels.gpu.cases import random
from headrace_kernels.paged_attention.cases import attention_case
from headrace_server.attention.choose import attention_backend, why_not
from headrace_server.attention.interface import AttentionBatch, HeadCounts, LayerAttention
from headrace_server.gpu_check.chip import Chip
from headrace_server.gpu_check.clock import Clock
from headrace_server.gpu_check.kernels import OVER
from headrace_server.gpu_check.report import Line, Report, told

DECODES = ((1, 1024), (1, 8192), (16, 4096), (64, 1024), (64, 8192), (256, 1024))
ENOUGH_ROWS = 17
"""With eight KV heads this many rows give every multiprocessor a program: from here on bandwidth is the limit."""
DECODE_GOAL, PROMPT_GOAL = 0.85, 0.55
HEADS = HeadCounts(32, 8, 128)
LIBRARIES = ("fa3", "flashinfer")


def check_attention(clock: Clock, chip: Chip, report: Report, tiny: bool, over: Callable[[], bool]) -> None:
    """Decode rows by the bytes that they read, prompts by their FLOP."""
    _decodes(clock, chip, report, tiny, over)
    if not over():
        _prompts(clock, chip, report, tiny)


def _decodes(clock: Clock, chip: Chip, report: Report, tiny: bool, over: Callable[[], bool]) -> None:
    section = "decode attention, heads 32/8 of 128: GB/s beside a copy"
    shapes = [(2, 40)] if tiny else DECODES
    caches = {"": None, ", float8 cache": torch.float8_e4m3fn}
    for rows, context in shapes:
        for label, dtype in caches.items():
            name = f"{rows} rows of {context}{label}"
            if over():
                report.add(Line(section, name, note=OVER))
                continue
            report.attempt(section, name, partial(_decode, clock, chip, section, name, rows, context, dtype, tiny))


def _decode(
    clock: Clock,
    chip: Chip,
    section: str,
    name: str,
    rows: int,
    context: int,
    dtype: torch.dtype | None,
    tiny: bool,
) -> list[Line]:
    case = attention_case(name, [(1, context)] * rows, dtype, clock.device, tiny)
    us = clock.us(case.run)
    goal = DECODE_GOAL if rows >= ENOUGH_ROWS and not tiny else None
    return [Line(section, name, us, case.bytes / us / 1e3, share=chip.share_of_copy(case.bytes, us), goal=goal)]


def _prompts(clock: Clock, chip: Chip, report: Report, tiny: bool) -> None:
    section = "prompt attention, heads 32/8 of 128: TFLOP/s beside a matrix product; others in µs"
    for tokens in (40,) if tiny else (1024, 4096, 16384):
        name = f"a prompt of {tokens}"
        report.attempt(section, name, partial(_prompt, clock, chip, section, name, tokens, tiny))


def _prompt(clock: Clock, chip: Chip, section: str, name: str, tokens: int, tiny: bool) -> list[Line]:
    case = attention_case(name, [(tokens, tokens)], None, clock.device, tiny)
    us = clock.us(case.run)
    flops = case.flops / (us * 1e-6)
    others = {"SDPA": clock.us(_dense(tokens, clock.device))}
    notes = []
    for library in LIBRARIES:
        reason = why_not(library, HEADS, clock.device, torch.bfloat16)
        try:
            if reason is None:
                others[library] = clock.us(_by(library, tokens, clock.device))
        except Exception as problem:  # a library that was built for another torch, or that finds no compiler
            reason = told(problem)
        if reason is not None:
            notes.append(f"{library}: {reason}")
    share, goal = flops / chip.flops, PROMPT_GOAL if tokens == 4096 else None
    note = "; ".join(notes)
    return [Line(section, name, us, tflop_s=flops / 1e12, share=share, goal=goal, beside=others, note=note)]


def _dense(tokens: int, device: torch.device) -> Callable[[], Tensor]:
    """Torch's own attention of the same prompt, its keys and values in one piece."""
    half = torch.bfloat16
    query = random(1, HEADS.num_heads, tokens, HEADS.head_dim, device=device, dtype=half)
    key, value = (random(1, HEADS.num_kv_heads, tokens, HEADS.head_dim, device=device, dtype=half) for _ in range(2))
    return lambda: scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


class _Chunk(NamedTuple):
    """A prompt alone, as the host knows it."""

    block_tables: NDArray[np.int32]
    query_starts: NDArray[np.int32]
    context_lengths: NDArray[np.int32]


def _by(library: str, tokens: int, device: torch.device) -> Callable[[], Tensor]:
    """Another backend on the same prompt. It stores keys and values too, which is next to nothing."""
    backend = attention_backend(library, HEADS, 16, device, torch.bfloat16)
    blocks = -(-tokens // backend.block_size)
    cache = backend.allocate(blocks, torch.bfloat16)
    backend.prepare(1, tokens)
    chunk = _Chunk(*(np.array(numbers, np.int32) for numbers in ([range(blocks)], [0, tokens], [tokens])))
    tables, starts, lengths = (torch.from_numpy(numbers).to(device) for numbers in chunk)
    batch = AttentionBatch(tables, starts, lengths, tokens, on_host=chunk)
    width = (HEADS.num_heads + 2 * HEADS.num_kv_heads) * HEADS.head_dim
    qkv = random(tokens, width, device=device, dtype=torch.bfloat16)
    layer = LayerAttention(HEADS.num_heads, HEADS.head_dim**-0.5, None, None)
    return lambda: backend(qkv, layer, None, cache, batch)
