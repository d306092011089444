"""How long a call takes on the device."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

REPEATS = 15
CACHE_BYTES = 256 * 2**20
"""More than any chip's second-level cache: what a call reads must come from memory."""


class Clock:
    """Of one device. On a CPU, in a dry run, each call is made once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._real = device.type == "cuda"
        self._other = torch.empty(CACHE_BYTES if self._real else 0, dtype=torch.uint8, device=device)

    def us(self, run: Callable[[], Any]) -> float:
        """Median of a few runs after two that don't count, with cold caches."""
        if not self._real:
            began = time.perf_counter()
            run()
            return (time.perf_counter() - began) * 1e6
        for _ in range(2):
            run()
        spans = []
        for _ in range(REPEATS):
            self._other.zero_()
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            run()
            after.record()
            spans.append((before, after))
        torch.cuda.synchronize()
        return median(before.elapsed_time(after) for before, after in spans) * 1000
