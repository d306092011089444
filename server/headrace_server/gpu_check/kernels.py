"""Each kernel beside its definition: the same numbers, and how long both take."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from headrace_kernels.gpu.cases import Case, all_cases, error
from headrace_server.gpu_check.chip import Chip
from headrace_server.gpu_check.clock import Clock
from headrace_server.gpu_check.report import Line, Report

COMPILED = ("rms_norm", "add_rms_norm", "silu_and_mul", "rotary_embedding")
"""Operations whose definitions `torch.compile` makes one kernel of too: what ours must be worth writing beside."""
OVER = "time is over"


def check_kernels(clock: Clock, chip: Chip, report: Report, tiny: bool, over: Callable[[], bool]) -> None:
    """`over`: whether the rest is to be left out."""
    section = "kernels, beside their definitions in torch (and those through torch.compile), µs"
    for case in all_cases(clock.device, tiny):
        if over():
            report.add(Line(section, case.name, note=OVER))
        else:
            report.attempt(section, case.name, partial(_check, case, section, clock, chip, tiny))


def _check(case: Case, section: str, clock: Clock, chip: Chip, tiny: bool) -> list[Line]:
    wrong = error(case)
    us = clock.us(case.run)
    beside = {"torch": clock.us(case.reference)}
    if case.name in COMPILED and not tiny:
        beside["compiled"] = clock.us(_compiled(case.reference))
    seconds = us * 1e-6
    return [
        Line(
            section,
            case.name,
            us,
            gb_s=case.bytes / seconds / 1e9 if case.bytes else None,
            tflop_s=case.flops / seconds / 1e12 if case.flops else None,
            share=max(chip.share_of_copy(case.bytes, us), case.flops / seconds / chip.flops),
            beside=beside,
            error=wrong,
            right=wrong <= case.tolerance,
        )
    ]


def _compiled(run: Callable[[], Any]) -> Callable[[], Any]:
    return torch.compile(run, fullgraph=False, dynamic=False)
