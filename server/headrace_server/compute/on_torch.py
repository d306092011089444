"""Torch's way: the model's layers one after the other, on a GPU or on a CPU without C++ kernels."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from headrace_server.attention.paged import AttentionBatch, LayerCache, PagedAttention
from headrace_server.batch import Batch, StepRows, build_batch
from headrace_server.compute.interface import Computed, PoolPlan, check_copies
from headrace_server.memory import CPU_SHARE, GPU_SHARE, available_bytes, available_on_gpu
from headrace_server.models.llama import Llama
from headrace_server.prompt_logprobs import prompt_logprobs
from headrace_server.rows import Rows
from headrace_server.sampling.on_torch.sampler import sample_with_torch
from headrace_server.sampling.samples import Samples
from headrace_server.step import Floats, Ints


class TorchCompute:
    """A `Compute` whose model is tensors."""

    def __init__(
        self,
        model: Llama,
        backend: PagedAttention,
        dtype: torch.dtype,
        device: torch.device,
        memory_fraction: float = 1.0,
    ) -> None:
        """`memory_fraction`: of a GPU's memory, for everything together."""
        self.config = model.config
        self.dtype = str(dtype).removeprefix("torch.")
        self.device = str(device)
        self.block_size = backend.block_size
        self.kv_bytes_per_token = model.config.kv_bytes_per_token(dtype.itemsize)
        self.model = model
        self._backend = backend
        self._torch_dtype = dtype
        self._torch_device = device
        self._memory_fraction = memory_fraction
        self._layers: Sequence[LayerCache] = ()
        self._num_blocks = 0
        self._last_token = torch.zeros(0, dtype=torch.int64, device=device)  # sampled, not yet computed

    def available(self) -> tuple[int, float]:
        if self._torch_device.type != "cuda":
            return available_bytes(), CPU_SHARE
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self._torch_device)
        reserved = torch.cuda.memory_reserved(self._torch_device)
        return available_on_gpu(free, total, reserved, self._memory_fraction), GPU_SHARE

    def prepare(self, plan: PoolPlan) -> None:
        self._num_blocks = plan.num_blocks
        self._layers = [self._backend.allocate(plan.num_blocks, self._torch_dtype) for _ in self.config.layers]
        self.model.serve(plan.served_positions)
        self._last_token = torch.zeros(plan.max_rows, dtype=torch.int64, device=self._torch_device)

    def free_pool(self) -> None:
        self._layers, self._num_blocks = (), 0

    def copy_blocks(self, pairs: Ints) -> None:
        check_copies(pairs, self._num_blocks)
        if len(pairs) == 0:
            return
        sources, targets = torch.from_numpy(pairs.T.copy()).to(self._torch_device)
        for layer in self._layers:
            layer.keys[targets] = layer.keys[sources]
            layer.values[targets] = layer.values[sources]

    @torch.inference_mode()
    def compute(self, laid_out: StepRows, rows: Rows) -> Computed:
        began = time.perf_counter_ns()
        batch = build_batch(laid_out, rows)
        hidden = self._hidden(batch, laid_out)

        def logprobs(tokens: Ints, following: Ints) -> Floats:
            values = self.model.logits(hidden[self._tensor(tokens)]).log_softmax(dim=-1)
            return values.gather(1, self._tensor(following)[:, None])[:, 0].cpu().numpy()

        prompts = prompt_logprobs(logprobs, laid_out, rows)
        if not len(batch.last_tokens):
            return Computed(None, prompts, _us_since(began), 0)
        # A step of decodes alone needs no selection.
        all_sample = len(batch.last_tokens) == len(hidden)
        logits = self.model.logits(hidden if all_sample else hidden[self._tensor(batch.last_tokens)])
        forwarded = time.perf_counter_ns()
        samples = self._sample(logits, laid_out, rows)
        return Computed(samples, prompts, (forwarded - began) // 1000, _us_since(forwarded))

    def _hidden(self, batch: Batch, laid_out: StepRows) -> torch.Tensor:
        decodes = self._last_token[self._tensor(laid_out.decodes)]
        return self.model(
            torch.cat((self._tensor(batch.prompt_tokens), decodes)),
            self._tensor(batch.positions),
            self._layers,
            AttentionBatch(
                self._tensor(batch.block_tables),
                self._tensor(batch.query_starts),
                self._tensor(batch.context_lengths),
            ),
        )

    def _sample(self, logits: torch.Tensor, laid_out: StepRows, rows: Rows) -> Samples:
        sampling = laid_out.rows[laid_out.sampling]
        drawn = sample_with_torch(logits, sampling, rows.known[sampling] - rows.prompt[sampling], rows.sampling)
        self._last_token[self._tensor(sampling)] = drawn.ids
        return drawn.on_host()

    def _tensor(self, values: NDArray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._torch_device)


def _us_since(began_ns: int) -> int:
    return (time.perf_counter_ns() - began_ns) // 1000
