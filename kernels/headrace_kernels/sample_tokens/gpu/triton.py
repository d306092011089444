"""Launches the kernels that a step's rows need, in the order of docs/sampling.md."""

from dataclasses import dataclass

import numpy as np
import torch
import triton
from torch import Tensor

from headrace_kernels.gpu.launch import launch
from headrace_kernels.sample_tokens.columns import Ints
from headrace_kernels.sample_tokens.gpu.device_columns import DeviceColumns
from headrace_kernels.sample_tokens.gpu.edit import edit_kernel
from headrace_kernels.sample_tokens.gpu.filters import choose_kernel, weigh_kernel
from headrace_kernels.sample_tokens.gpu.finish import finish_kernel
from headrace_kernels.sample_tokens.gpu.plan import Plan, positions
from headrace_kernels.sample_tokens.gpu.report import likeliest_kernel, logprobs_kernel, maxima_kernel
from headrace_kernels.sample_tokens.gpu.rows import GROUP
from headrace_kernels.sample_tokens.gpu.samples import DeviceSamples
from headrace_kernels.sample_tokens.gpu.scan import scan_kernel
from headrace_kernels.token_logprobs.triton import log_totals

TILE = 2048  # tokens of a program that reads a part of a row
CHUNK = 32  # groups that a program looks at together when it chooses among a row's candidates
EXACT = {"enable_fp_fusion": False}
"""Of kernels whose bits are those of the C++: a product is not fused with a sum unless the source says so."""


@dataclass(frozen=True)
class _Step:
    """What all kernels of a step read."""

    logits: Tensor
    edited: Tensor  # [edited, vocab_size] float32; the logits if nothing is edited
    edited_at: Tensor  # [places] int32
    rows: Tensor  # [places] int32
    indices: Tensor  # [places] int32
    columns: DeviceColumns
    last_token: Tensor | None

    @property
    def vocab_size(self) -> int:
        return self.logits.shape[1]

    @property
    def tiles(self) -> int:
        return triton.cdiv(self.vocab_size, TILE)

    @property
    def groups(self) -> int:
        return triton.cdiv(self.vocab_size, GROUP.value)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.logits.device)


def sample_tokens(
    logits: Tensor,
    rows: Ints,
    indices: Ints,
    columns: DeviceColumns,
    plan: Plan,
    masks: Tensor | None,
    mask_at: Ints,
    last_token: Tensor | None,
    kept: Tensor | None,
) -> DeviceSamples:
    """See `headrace_kernels.sample_tokens.gpu`; the arguments are checked."""
    num_places = len(logits)
    parts = (rows, indices, positions(plan.edited, num_places), positions(plan.filtered, num_places))
    edits = (plan.edited, mask_at[plan.edited])
    reports = (plan.reported, plan.top_n, plan.top_n.cumsum() - plan.top_n)
    there = columns.upload([part.astype(np.int32) for part in (*parts, *edits, plan.filtered, *reports)])
    edited = torch.empty(len(plan.edited), logits.shape[1], device=logits.device) if len(plan.edited) else logits
    step = _Step(logits, edited, there[2], there[0], there[1], columns, last_token)
    samples = DeviceSamples(
        step.empty(num_places, dtype=torch.int64),
        step.empty(num_places, dtype=torch.int32),
        step.empty(len(plan.reported)),
        step.empty(plan.num_top, dtype=torch.int32),
        step.empty(plan.num_top),
        plan.reported,
    )
    if len(plan.edited):
        _edit(step, there[4], masks, there[5])
    bests, ids = step.empty(num_places, step.tiles), step.empty(num_places, step.tiles, dtype=torch.int32)
    maxima = step.empty(len(plan.filtered), step.groups)
    _scan_and_finish(step, there[3], bests, ids, maxima, samples)
    if len(plan.filtered):
        _choose(step, there[6], bests, maxima, samples, kept)
    if len(plan.reported):
        _report(step, there[7], there[8], there[9], plan.num_top, samples)
    return samples


def _edit(step: _Step, places: Tensor, masks: Tensor | None, mask_at: Tensor) -> None:
    columns = step.columns
    launch(
        edit_kernel, (len(places), step.tiles),
        step.logits, step.logits.stride(0), step.edited, places, step.rows, columns.parameters, columns.counts,
        columns.bias_ids, columns.bias_values, columns.bias_ids.shape[1], masks, mask_at, step.vocab_size,
        HAS_MASKS=masks is not None, TILE=TILE, num_warps=4, **EXACT,
    )  # fmt: skip


def _scan_and_finish(
    step: _Step, filtered_at: Tensor, bests: Tensor, ids: Tensor, maxima: Tensor, samples: DeviceSamples
) -> None:
    columns = step.columns
    launch(
        scan_kernel, (len(step.logits), step.tiles),
        step.logits, step.logits.stride(0), step.edited, step.edited_at, filtered_at, step.rows, step.indices,
        columns.parameters, bests, ids, maxima, step.vocab_size, TILE=TILE, num_warps=4, **EXACT,
    )  # fmt: skip
    launch(
        finish_kernel, (len(step.logits),),
        bests, ids, filtered_at, step.rows, columns.parameters, columns.counts, step.last_token,
        samples.ids, samples.possible, step.vocab_size, step.tiles,
        TILES=triton.next_power_of_2(step.tiles), num_warps=1,
    )  # fmt: skip


def _choose(
    step: _Step, places: Tensor, bests: Tensor, maxima: Tensor, samples: DeviceSamples, kept: Tensor | None
) -> None:
    columns, tiles = step.columns, triton.next_power_of_2(step.tiles)
    masses = step.empty(len(places), step.tiles, 2, dtype=torch.int64)
    active = step.empty(len(places), step.groups, dtype=torch.int32)
    launch(
        weigh_kernel, (len(places), step.tiles),
        step.logits, step.logits.stride(0), step.edited, step.edited_at, places, step.rows, columns.parameters,
        bests, masses, step.vocab_size, TILE=TILE, TILES=tiles, num_warps=4, **EXACT,
    )  # fmt: skip
    launch(
        choose_kernel, (len(places),),
        step.logits, step.logits.stride(0), step.edited, step.edited_at, places, step.rows, step.indices,
        columns.parameters, bests, maxima, masses, active, columns.counts, step.last_token,
        samples.ids, samples.possible, kept, step.vocab_size, step.tiles,
        TILES=tiles, GROUPS=triton.next_power_of_2(step.groups), CHUNK=CHUNK, num_warps=8, **EXACT,
    )  # fmt: skip


def _report(
    step: _Step, places: Tensor, top_n: Tensor, top_starts: Tensor, num_top: int, samples: DeviceSamples
) -> None:
    logits, count = step.logits, len(places)
    totals = log_totals(logits, places, count)
    launch(
        logprobs_kernel, (count,),
        logits, logits.stride(0), places, totals, samples.ids, samples.possible, samples.logprobs, num_warps=1,
    )  # fmt: skip
    if not num_top:
        return
    maxima, active = step.empty(count, step.groups), step.empty(count, step.groups, dtype=torch.int32)
    launch(
        maxima_kernel, (count, step.tiles),
        logits, logits.stride(0), places, top_n, maxima, step.vocab_size, TILE=TILE, num_warps=4,
    )  # fmt: skip
    launch(
        likeliest_kernel, (count,),
        logits, logits.stride(0), places, top_n, top_starts, totals, maxima, active,
        step.empty(num_top, dtype=torch.int32), step.empty(num_top), samples.top_ids, samples.top_logprobs,
        step.vocab_size, GROUPS=triton.next_power_of_2(step.groups), CHUNK=CHUNK, num_warps=8,
    )  # fmt: skip
