"""The CPU's way: one C++ call for all layers and the head, one for sampling. Numpy arrays; torch only where several
ranks talk."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.decoder import Decoder, DecoderWeights, KvLayer, StepInputs, StepOutputs, Times
from headrace_kernels.kv_cache import SCALE_BYTES, kv_cache_shape
from headrace_kernels.memory import huge_zeros
from headrace_kernels.token_logprobs import token_logprobs
from headrace_server.batch import Batch, StepRows, build_batch
from headrace_server.compute.host_blocks import HostBlocks, trial_pairs
from headrace_server.compute.interface import Computed, PoolPlan, check_copies
from headrace_server.distributed.collective import Alone, Collective, Exchange
from headrace_server.layers.rope_scaling import cos_sin_table
from headrace_server.memory import CPU_SHARE, available_bytes
from headrace_server.models.config import ModelConfig
from headrace_server.prompt_logprobs import SLICE, AskedChunk
from headrace_server.rows import Rows
from headrace_server.sampling.on_cpu import IMPOSSIBLE, UNKNOWN, likeliest, sample_on_cpu
from headrace_server.sampling.samples import Samples
from headrace_server.step import Floats, Ints

if TYPE_CHECKING:
    from headrace_server.compute.rank_decoder import RankDecoder
    from headrace_server.distributed.arrays import ArrayCollective
    from headrace_server.distributed.stand_in import Course, StandIn

ELEMENT = {native.FLOAT32: np.float32, native.BFLOAT16: np.uint16}
NAME = {native.FLOAT32: "float32", native.BFLOAT16: "bfloat16"}


@dataclass(frozen=True, slots=True)
class AmongRanks:
    """What a rank must know of the others."""

    collective: "ArrayCollective"
    vocabulary_widths: Sequence[int]  # of each rank
    sharers: int  # ranks that share this machine's memory
    stand_in: "StandIn"


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

    def __init__(
        self,
        config: ModelConfig,
        weights: DecoderWeights,
        block_size: int,
        *,
        eight_bit_cache: bool = False,
        among: AmongRanks | None = None,
    ) -> None:
        self.config = config
        self.collective: Collective = Alone() if among is None else among.collective.collective
        self._among = among
        self.dtype = NAME[weights.dtype]
        self.block_size = block_size
        self.weights = weights
        self.times: Times | None = None  # steps add to it what their operations took
        self._block_shape = kv_cache_shape(1, block_size, weights.num_kv_heads, config.head_dim, int8=eight_bit_cache)
        self._cache_element = np.int8 if eight_bit_cache else ELEMENT[weights.dtype]
        self.kv_bytes_per_token = config.kv_bytes_per_token(
            np.dtype(self._cache_element).itemsize,
            weights.num_kv_heads,
            scale_bytes=SCALE_BYTES if eight_bit_cache else 0,
        )
        self._cache: Sequence[KvLayer] = ()
        self._host: Sequence[KvLayer] = ()  # of blocks that are swapped out
        self._host_blocks = HostBlocks(0, 0)
        self.decoder: Decoder | RankDecoder | None = None  # from Warmup on
        self._last_token: NDArray[np.int64] = np.empty(0, np.int64)

    def available(self) -> tuple[int, float]:
        return available_bytes(), CPU_SHARE / (self._among.sharers if self._among is not None else 1)

    def worst_case(self, run: Callable[[], None]) -> int:
        return 0  # the share leaves room for it

    def prepare(self, plan: PoolPlan) -> None:
        self._cache = self._allocate(plan.num_blocks)
        self._host = self._allocate(plan.host_blocks)
        self._host_blocks = HostBlocks(plan.num_blocks, plan.host_blocks)
        table = cos_sin_table(self.config.rope, plan.served_positions)
        decoder = Decoder(self.weights, table, self._cache, self.block_size)
        self.decoder = decoder if self._among is None else _among_ranks(decoder, self._among)
        self.decoder.reserve(plan.max_step_tokens, max(plan.max_rows, SLICE))
        if self._among is not None:
            self._among.stand_in.reserve(*self._exchanges(plan.max_step_tokens, plan.max_rows, plan.max_rows, [SLICE]))
        self._last_token = np.zeros(plan.max_rows, np.int64)

    def _allocate(self, num_blocks: int) -> Sequence[KvLayer]:
        shape, element = (num_blocks, *self._block_shape[1:]), self._cache_element
        return [KvLayer(huge_zeros(shape, element), huge_zeros(shape, element)) for _ in self.config.layers]

    def free_pool(self) -> None:
        self.decoder, self._cache, self._host = None, (), ()
        if self._among is not None:
            self._among.stand_in.free()

    def copy_blocks(self, pairs: Ints) -> None:
        check_copies(pairs, self._cache[0].keys.shape[0] if self._cache else 0)
        _copy_blocks(self._cache, self._cache, pairs)

    def swap(self, out: Ints, back: Ints) -> None:
        self._host_blocks.note(out, back)
        _copy_blocks(self._cache, self._host, out)
        _copy_blocks(self._host, self._cache, back)

    def swap_us(self) -> int:
        pairs = trial_pairs(self._cache[0].keys.shape[0], self._host_blocks.count)
        if len(pairs) == 0:
            return 0
        self.swap(pairs, pairs)  # the first time pages are taken
        began = time.perf_counter_ns()
        self.swap(pairs, pairs)
        return -(-(time.perf_counter_ns() - began) // (2000 * len(pairs)))

    def launch(self, laid_out: StepRows, asked: list[AskedChunk], rows: Rows) -> "Landed":
        if self._among is None:
            return self._computed(laid_out, asked, rows)
        with self._among.stand_in.through(lambda: self._course(laid_out, asked, rows)):
            return self._computed(laid_out, asked, rows)

    def _computed(self, laid_out: StepRows, asked: list[AskedChunk], rows: Rows) -> "Landed":
        began = time.perf_counter_ns()
        assert self.decoder is not None, "steps come after Warmup"
        batch = build_batch(laid_out, rows)
        sampling = laid_out.sampling_rows
        plain = rows.sampling.plain[sampling]
        outputs = self.decoder.forward(self._inputs(batch, laid_out, ~plain), self.times)
        told = [self._told(chunk) for chunk in asked]
        forwarded = time.perf_counter_ns()
        samples = self._sample(outputs, sampling, plain, rows) if len(sampling) else None
        sampled = time.perf_counter_ns()
        return Landed(Computed(samples, told, (forwarded - began) // 1000, (sampled - forwarded) // 1000))

    def _course(self, laid_out: StepRows, asked: list[AskedChunk], rows: Rows) -> "Course":
        """What other ranks wait for in a step."""
        assert self._among is not None, "a rank that is alone exchanges nothing"
        sampling = laid_out.sampling_rows
        logits = int(np.count_nonzero(~rows.sampling.plain[sampling]))
        told = [len(following) for chunk in asked for _, following in chunk.slices()]
        tokens = int(laid_out.num_tokens.sum())
        return self._among.stand_in.say_nothing(*self._exchanges(tokens, len(sampling), logits, told))

    def _exchanges(self, tokens: int, sampled: int, logits: int, told: Sequence[int]) -> list[Exchange]:
        """In a step of so many tokens, of which so many are sampled, some of them from logits; `told`: see
        `RankDecoder.exchanges`."""
        from headrace_server.compute.rank_decoder import RankDecoder
        from headrace_server.distributed.stand_in import passed_on

        assert isinstance(self.decoder, RankDecoder), "ranks compute together from Warmup on"
        return [*self.decoder.exchanges(tokens, sampled, logits, told), *passed_on(sampled)]

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
        parts = [self._logprobs(tokens, following) for tokens, following in chunk.slices()]
        return np.concatenate([np.empty(0, np.float32), *parts])

    def _logprobs(self, tokens: Ints, following: Ints) -> Floats:
        assert self.decoder is not None, "steps come after Warmup"
        logits = self.decoder.logits(tokens)
        if self.collective.rank > 0:
            return np.full(len(following), np.nan, np.float32)  # rank 0 tells
        return token_logprobs(logits, following)

    def _sample(self, outputs: StepOutputs, sampling: Ints, plain: NDArray[np.bool_], rows: Rows) -> Samples | None:
        """Rank 0 samples, and all ranks get the ids: they are the next step's inputs."""
        samples = self._drawn(outputs, sampling, plain, rows) if self.collective.rank == 0 else None
        ids = np.empty(len(sampling), np.int64) if samples is None else samples.ids
        if self._among is not None:
            self._among.collective.broadcast(ids)
        self._last_token[sampling] = ids
        return samples

    def _drawn(self, outputs: StepOutputs, sampling: Ints, plain: NDArray[np.bool_], rows: Rows) -> Samples:
        possible = np.isfinite(outputs.best_logits)
        if plain.all():
            return likeliest(np.where(possible, outputs.best_ids, 0), possible)
        known = np.where(plain, np.where(possible, outputs.best_ids, IMPOSSIBLE), UNKNOWN)
        indices = rows.known[sampling] - rows.prompt[sampling]
        return sample_on_cpu(outputs.logits, sampling, indices, rows.sampling, known=known)


def _among_ranks(decoder: Decoder, among: AmongRanks) -> "RankDecoder":
    from headrace_server.compute.rank_decoder import RankDecoder

    return RankDecoder(decoder, among.collective, among.vocabulary_widths)


def _copy_blocks(sources: Sequence[KvLayer], targets: Sequence[KvLayer], pairs: Ints) -> None:
    if len(pairs) == 0:
        return
    of, to = pairs.T
    for source, target in zip(sources, targets, strict=True):
        target.keys[to] = source.keys[of]
        target.values[to] = source.values[of]
