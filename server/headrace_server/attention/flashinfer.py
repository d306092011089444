"""Attention of prompts by FlashInfer; keys and values are stored, and decode rows alone attended, by our own kernels.

FlashInfer plans a batch on the host before it runs. A step with prompt chunks has time for that; a decode step that was
recorded doesn't come back to the host, so there our kernels stay. Both read the same pages, [kv_heads, block_size,
head_dim], which FlashInfer calls HND.

Plans are made from what the host knows, while the device is still busy with the step before.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headrace_server.attention.interface import AttentionBatch, HeadCounts, LayerAttention, LayerCache
from headrace_server.attention.paged import PagedAttention

MODULE = "flashinfer"
HEAD_DIMS = (64, 128, 256)
"""Those that it has kernels for."""

WORKSPACE_BYTES = 128 * 1024 * 1024
"""What its documentation says is enough."""


@dataclass(slots=True)
class Plan:
    """A wrapper, and what it is ready for."""

    wrapper: Any
    batch: AttentionBatch | None = None
    copied: torch.cuda.Event | None = None  # from the wrapper's pinned memory, which the next plan overwrites


class FlashInfer(PagedAttention):
    """Layers with the same window share a plan, which the first of them makes. The plan of the step before is left as
    it is: the device may not have copied it yet."""

    def __init__(self, heads: HeadCounts, block_size: int, device: torch.device) -> None:
        """Raises ImportError if the library is missing."""
        super().__init__(heads, block_size, device, "triton")
        self.name = "flashinfer"
        self._library: Any = import_module(MODULE)
        self._space: Tensor | None = None
        self._plans: dict[int, tuple[Plan, Plan]] = {}  # by window: the latest, and the one before

    def prepare(self, max_rows: int, max_context: int) -> None:
        super().prepare(max_rows, max_context)
        self._space = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=self._device)
        self._plans = {}

    def _attend(
        self,
        query: Tensor,
        layer: LayerAttention,
        cache: LayerCache,
        batch: AttentionBatch,
        scales: tuple[float, float],
    ) -> Tensor:
        if batch.most_queries == 1:
            return super()._attend(query, layer, cache, batch, scales)
        window = -1 if layer.sliding_window is None else layer.sliding_window - 1
        latest, before = self._plans.get(window) or (self._nothing(), self._nothing())
        if latest.batch is not batch:
            latest, before = before, latest
            self._make(latest, window, query, layer, cache, batch)
        self._plans[window] = latest, before
        return latest.wrapper.run(query, (cache.keys, cache.values))

    def _nothing(self) -> Plan:
        return Plan(self._library.BatchPrefillWithPagedKVCacheWrapper(self._space, "HND"))

    def _make(
        self,
        plan: Plan,
        window: int,
        query: Tensor,
        layer: LayerAttention,
        cache: LayerCache,
        batch: AttentionBatch,
    ) -> None:
        """Its form of block tables: all rows' blocks in one list, where each row's begin, tokens in the last one. Only
        the blocks are read by the device."""
        host = batch.on_host
        assert host is not None, "a step with prompt chunks is not recorded"
        if plan.copied is not None:
            plan.copied.synchronize()  # of the step before the last, which has most likely ended
        counts = -(-host.context_lengths // self.block_size)
        starts = np.concatenate((np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)))
        blocks = torch.from_numpy(host.block_tables[np.arange(host.block_tables.shape[1]) < counts[:, None]])
        on_gpu = query.device.type == "cuda"
        plan.wrapper.plan(
            torch.from_numpy(host.query_starts),
            torch.from_numpy(starts),
            (blocks.pin_memory() if on_gpu else blocks).to(query.device, non_blocking=True),
            torch.from_numpy((host.context_lengths - 1) % self.block_size + 1),
            layer.num_heads,
            self._heads.num_kv_heads,
            self._heads.head_dim,
            self.block_size,
            causal=True,
            sm_scale=layer.scale,
            window_left=window,
            q_data_type=query.dtype,
            kv_data_type=cache.keys.dtype,
        )
        plan.batch = batch
        if on_gpu:
            plan.copied = torch.cuda.Event()
            plan.copied.record()
