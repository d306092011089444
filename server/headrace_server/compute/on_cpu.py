"""The CPU's way: one C++ call for all layers and the head, one for sampling. Numpy arrays; no torch."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.decoder import Decoder, DecoderWeights, KvLayer, StepInputs, StepOutputs, Times
from headrace_kernels.kv_cache import kv_cache_shape
from headrace_kernels.memory import huge_zeros
from headrace_kernels.token_logprobs import token_logprobs
from headrace_server.batch import Batch, StepRows, build_batch
from headrace_server.compute.interface import Computed, PoolPlan, check_copies
from headrace_server.distributed.collective import Alone, Collective
from headrace_server.layers.rope_scaling import cos_sin_table
from headrace_server.memory import CPU_SHARE, available_bytes
from headrace_server.models.config import ModelConfig
from headrace_server.prompt_logprobs import SLICE, AskedChunk
from headrace_server.rows import Rows
from headrace_server.sampling.on_cpu import IMPOSSIBLE, UNKNOWN, sample_on_cpu
from headrace_server.sampling.samples import Samples
from headrace_server.step import Floats, Ints

ELEMENT = {native.FLOAT32: np.float32, native.BFLOAT16: np.uint16}
NAME = {native.FLOAT32: "float32", native.BFLOAT16: "bfloat16"}


@dataclass(frozen=True, slots=True)
class Landed:
    """A step that had ended when its launch returned."""

    computed: Computed

    def land(self) -> Computed:
        return self.computed


class CpuCompute:
    """A `Compute` whose model is packed weights."""

    device = "cpu"
    overlaps = False
    collective: Collective = Alone()  # one call computes all layers: there is no place for a sum over ranks

    def __init__(self, config: ModelConfig, weights: DecoderWeights, block_size: int) -> None:
        self.config = config
        self.dtype = NAME[weights.dtype]
        self.block_size = block_size
        self.weights = weights
        self.times: Times | None = None  # steps add to it what their operations took
        self._block_shape = kv_cache_shape(1, block_size, config.num_kv_heads, config.head_dim)
        self.kv_bytes_per_token = config.kv_bytes_per_token(np.dtype(ELEMENT[weights.dtype]).itemsize)
        self._cache: Sequence[KvLayer] = ()
        self.decoder: Decoder | None = None  # from Warmup on
        self._last_token: NDArray[np.int64] = np.empty(0, np.int64)

    def available(self) -> tuple[int, float]:
        return available_bytes(), CPU_SHARE

    def worst_case(self, run: Callable[[], None]) -> int:
        return 0  # the share leaves room for it

    def prepare(self, plan: PoolPlan) -> None:
        shape = (plan.num_blocks, *self._block_shape[1:])
        element = ELEMENT[self.weights.dtype]
        self._cache = [KvLayer(huge_zeros(shape, element), huge_zeros(shape, element)) for _ in self.config.layers]
        table = cos_sin_table(self.config.rope, plan.served_positions)
        self.decoder = Decoder(self.weights, table, self._cache, self.block_size)
        self.decoder.reserve(plan.max_step_tokens, max(plan.max_rows, SLICE))
        self._last_token = np.zeros(plan.max_rows, np.int64)

    def free_pool(self) -> None:
        self.decoder, self._cache = None, ()

    def copy_blocks(self, pairs: Ints) -> None:
        check_copies(pairs, self._cache[0].keys.shape[0] if self._cache else 0)
        if len(pairs) == 0:
            return
        sources, targets = pairs.T
        for layer in self._cache:
            layer.keys[targets] = layer.keys[sources]
            layer.values[targets] = layer.values[sources]

    def launch(self, laid_out: StepRows, asked: list[AskedChunk], rows: Rows) -> "Landed":
        began = time.perf_counter_ns()
        assert self.decoder is not None, "steps come after Warmup"
        batch = build_batch(laid_out, rows)
        sampling = laid_out.rows[laid_out.sampling]
        known = rows.sampling.plain[sampling]
        outputs = self.decoder.forward(self._inputs(batch, laid_out, ~known), self.times)
        told = [self._told(chunk) for chunk in asked]
        forwarded = time.perf_counter_ns()
        samples = self._sample(outputs, sampling, known, rows) if len(sampling) else None
        sampled = time.perf_counter_ns()
        return Landed(Computed(samples, told, (forwarded - began) // 1000, (sampled - forwarded) // 1000))

    def usable(self) -> bool:
        return True

    def relieve(self) -> None:
        pass  # nothing is kept

    def rehearse(self) -> None:
        pass

    def improve(self) -> bool:
        return False

    def _inputs(self, batch: Batch, laid_out: StepRows, logits_wanted: NDArray[np.bool_]) -> StepInputs:
        return StepInputs(
            np.concatenate((batch.prompt_tokens, self._last_token[laid_out.decodes])),
            batch.block_tables,
            batch.query_starts,
            batch.context_lengths,
            batch.last_tokens,
            logits_wanted,
        )

    def _told(self, chunk: AskedChunk) -> Floats:
        assert self.decoder is not None, "steps come after Warmup"
        logits = self.decoder.logits
        parts = [token_logprobs(logits(tokens), following) for tokens, following in chunk.slices()]
        return np.concatenate([np.empty(0, np.float32), *parts])

    def _sample(self, outputs: StepOutputs, sampling: Ints, plain: NDArray[np.bool_], rows: Rows) -> Samples:
        best = np.where(np.isfinite(outputs.best_logits), outputs.best_ids, IMPOSSIBLE)
        known = np.where(plain, best, UNKNOWN)
        indices = rows.known[sampling] - rows.prompt[sampling]
        samples = sample_on_cpu(outputs.logits, sampling, indices, rows.sampling, known=known)
        self._last_token[sampling] = samples.ids
        return samples
