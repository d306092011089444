"""What a device can do at best: copy bytes, multiply matrices."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headrace_server.gpu_check.clock import Clock
from headrace_server.gpu_check.report import Line, Report


@dataclass(frozen=True)
class Chip:
    """Measured here."""

    name: str
    copy: float  # bytes/s, read and written
    flops: float  # /s, bfloat16 products

    def share_of_copy(self, num_bytes: int, us: float) -> float:
        return num_bytes / (us * 1e-6) / self.copy


def measure_chip(clock: Clock, report: Report, tiny: bool) -> Chip:
    """A copy of a gigabyte; a product of 8,192 by 8,192 matrices."""
    section, device = "what this device can do", clock.device
    size, side = (2**16, 64) if tiny else (2**30, 8192)
    us = clock.us(_copy(size, device))
    copy = 2 * size / (us * 1e-6)
    report.add(Line(section, f"copy of {size / 2**20:,.1f} MiB", us, gb_s=copy / 1e9))
    left, right = (torch.randn(side, side, device=device).to(torch.bfloat16) for _ in range(2))
    us = clock.us(lambda: left @ right)
    flops = 2 * side**3 / (us * 1e-6)
    report.add(Line(section, f"bfloat16 product, {side} x {side} x {side}", us, tflop_s=flops / 1e12))
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "this CPU, interpreting"
    return Chip(name, copy, flops)


def _copy(size: int, device: torch.device) -> Callable[[], Tensor]:
    source, target = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
    return lambda: target.copy_(source)
