"""Torch's way: the model's layers one after the other, on a GPU or on a CPU without C++ kernels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_kernels.copy_blocks import cache_pointers, copy_blocks
from headrace_kernels.gather_rows import gather_rows
from headrace_kernels.ops import choose, token_logprobs
from headrace_server.attention.interface import AttentionBackend, AttentionBatch, LayerCache
from headrace_server.batch import Batch, StepRows, build_batch
from headrace_server.compute.graphs import DecodeGraphs, DecodeInputs, Padding, Recorded, graph_sizes
from headrace_server.compute.interface import Computed, PoolPlan, check_copies
from headrace_server.compute.swap_on_torch import HostCache
from headrace_server.devices.interface import Device, Mark
from headrace_server.distributed.stand_in import Course, StandIn, passed_on
from headrace_server.models.llama import Llama
from headrace_server.prompt_logprobs import SLICE, AskedChunk
from headrace_server.rows import Rows
from headrace_server.sampling.on_host import HostSampler
from headrace_server.sampling.sampler import Drawn, Sampler
from headrace_server.step import Floats, Ints


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """What the command line says about a GPU."""

    memory_fraction: float = 1.0  # of its memory, for everything together
    graph_sizes: Sequence[int] | None = None  # decode rows of each graph; None: what suits max_rows; empty: no graphs
    cache_dtype: torch.dtype | None = None  # of keys and values; None: the model's


class TorchCompute:
    """A `Compute` whose model is tensors."""

    def __init__(
        self,
        model: Llama,
        backend: AttentionBackend,
        dtype: torch.dtype,
        device: Device,
        options: TorchOptions | None = None,
    ) -> None:
        self.config = model.config
        self.dtype = str(dtype).removeprefix("torch.")
        self.device = str(device.torch_device)
        self.block_size = backend.block_size
        self.overlaps = device.overlaps
        self.model = model
        self.collective = model.collective
        self._stand_in = StandIn(model.collective, device.torch_device)
        self.backend = backend
        self._device = device
        self._options = options or TorchOptions()
        self._cache_dtype = self._options.cache_dtype or dtype
        self.kv_bytes_per_token = model.config.kv_bytes_per_token(self._cache_dtype.itemsize, len(model.split.kv_heads))
        self._layers: Sequence[LayerCache] = ()
        self._pointers = torch.empty(0, dtype=torch.int64)  # where each layer's keys and values begin
        self._num_blocks = 0
        self._host: HostCache | None = None  # blocks that are swapped out
        self._graphs: DecodeGraphs | None = None
        self._last_token = torch.zeros(0, dtype=torch.int64, device=device.torch_device)  # sampled, not yet computed
        self._sampler: Sampler = HostSampler()

    def available(self) -> tuple[int, float]:
        memory = self._device.memory(self._options.memory_fraction)
        return memory.available, memory.share

    def worst_case(self, run: Callable[[], None]) -> int:
        return self._device.worst_case(run)

    @torch.inference_mode()
    def prepare(self, plan: PoolPlan) -> None:
        self._num_blocks = plan.num_blocks
        # Padded rows of graphs have a block of their own, and a place for their token.
        allocated = plan.num_blocks + self._device.records
        self._layers = [self.backend.allocate(allocated, self._cache_dtype) for _ in self.config.layers]
        self.backend.prepare(plan.max_rows, plan.served_positions)
        self._pointers = cache_pointers(self._caches())
        self._host = HostCache(self._layers, plan.num_blocks, plan.host_blocks, self._device)
        self.model.serve(plan.served_positions)
        self._last_token = torch.zeros(plan.max_rows + 1, dtype=torch.int64, device=self._device.torch_device)
        self._sampler = self._new_sampler(plan.max_rows)
        if self.collective.world_size > 1:
            logits = max(plan.max_rows, SLICE)
            self._stand_in.reserve(*self.model.exchanges(plan.max_step_tokens, [logits]), *passed_on(plan.max_rows))
        if self._device.records:
            sizes = graph_sizes(self._options.graph_sizes, plan.max_rows)
            width = -(-plan.served_positions // self.block_size)
            padding = Padding(plan.max_rows, plan.num_blocks)
            self._graphs = DecodeGraphs(self._device, self.collective, self._decode, sizes, width, padding)

    def free_pool(self) -> None:
        self._layers, self._num_blocks, self._graphs, self._host = (), 0, None, None
        self._stand_in.free()

    @torch.inference_mode()
    def copy_blocks(self, pairs: Ints) -> None:
        check_copies(pairs, self._num_blocks)
        caches = self._caches()
        if caches[0].numel():  # a rank may have no heads
            copy_blocks(caches, self._pointers, self._upload(pairs))

    def usable(self) -> bool:
        return self._device.usable()

    def relieve(self) -> None:
        self._device.relieve()

    @torch.inference_mode()
    def swap(self, out: Ints, back: Ints) -> None:
        assert self._host is not None, "steps come after Warmup"
        self._host.swap(out, back)

    @torch.inference_mode()
    def swap_us(self) -> int:
        assert self._host is not None, "steps come after Warmup"
        return self._host.swap_us()

    @torch.inference_mode()
    def rehearse(self) -> None:
        if self._graphs is not None:
            self._graphs.record_largest()

    @torch.inference_mode()
    def improve(self) -> bool:
        return self._graphs is not None and self._graphs.record_next()

    @torch.inference_mode()
    def launch(self, laid_out: StepRows, asked: list[AskedChunk], rows: Rows) -> "TorchStep":
        graph = None
        if laid_out.num_chunks == 0 and self._graphs is not None:
            graph = self._graphs.holding(len(laid_out.rows))
        with self._stand_in.through(lambda: self._course(laid_out, asked, graph)):
            began = self._device.mark()
            batch = build_batch(laid_out, rows)
            logits, told = self._forward(laid_out, batch, asked, graph)
            forwarded = self._device.mark()
            samples = None if logits is None else self._sample(logits, laid_out, rows)
            sampled = self._device.mark()
            arrive = self._device.download(samples.tensors if samples is not None else [])
        return TorchStep((began, forwarded, sampled), samples, arrive, told)

    def _course(self, laid_out: StepRows, asked: list[AskedChunk], graph: Recorded | None) -> Course:
        """What other ranks wait for in a step: a forward pass, and that what was sampled is passed on."""
        count = len(laid_out.sampling_rows)
        sampled = passed_on(count)
        if graph is not None:
            assert self._graphs is not None
            return [partial(self._graphs.run_for_nobody, graph), *self._stand_in.say_nothing(*sampled)]
        tokens = int(laid_out.num_tokens.sum())
        logits = [len(following) for chunk in asked for _, following in chunk.slices()]
        if count:
            logits.append(count)
        return self._stand_in.say_nothing(*self.model.exchanges(tokens, logits), *sampled)

    def _forward(
        self, laid_out: StepRows, batch: Batch, asked: list[AskedChunk], graph: Recorded | None
    ) -> tuple[Tensor | None, Callable[[], list[Floats]]]:
        """Logits of the rows that sample, and what the chunks asked about their prompts."""
        if graph is not None:
            assert self._graphs is not None
            return self._graphs.run(graph, laid_out.rows, batch), list
        hidden = self._hidden(batch, laid_out)
        told = self._told(hidden, asked)
        if not len(batch.last_tokens):
            return None, told
        # A step of decodes alone needs no selection.
        all_sample = len(batch.last_tokens) == len(hidden)
        return self.model.logits(hidden if all_sample else gather_rows(hidden, self._upload(batch.last_tokens))), told

    def _hidden(self, batch: Batch, laid_out: StepRows) -> Tensor:
        # What a decode row sampled last, only the device may know.
        ids = np.concatenate((batch.prompt_tokens, -1 - laid_out.decodes))
        arrays: list[NDArray] = [ids, batch.block_tables, batch.query_starts, batch.context_lengths]
        tokens, tables, starts, lengths = self._device.upload(arrays)
        most_queries = int(laid_out.num_tokens.max())
        attention = AttentionBatch(tables, starts, lengths, most_queries, on_host=batch)
        return self.model(tokens, self._last_token, self._layers, attention)

    def _decode(self, inputs: DecodeInputs) -> Tensor:
        rows = len(inputs.tokens)
        with self._stand_in.through(lambda: self._stand_in.say_nothing(*self.model.exchanges(rows, [rows]))):
            return self.model.logits(self.model(inputs.tokens, self._last_token, self._layers, inputs.batch))

    def _told(self, hidden: Tensor, asked: list[AskedChunk]) -> Callable[[], list[Floats]]:
        if not asked:
            return list
        told = [[self._logprobs(hidden, *some) for some in chunk.slices()] for chunk in asked]
        arrive = self._device.download([part for parts in told for part in parts])

        def landed() -> list[Floats]:
            arrived = iter(arrive())
            return [np.concatenate([np.empty(0, np.float32), *(next(arrived) for _ in parts)]) for parts in told]

        return landed

    def _logprobs(self, hidden: Tensor, tokens: Ints, following: Ints) -> Tensor:
        places, following_ids = self._device.upload([tokens, following])
        logits = self.model.logits(gather_rows(hidden, places))
        if self.collective.rank > 0:
            return logits.new_full((len(following),), torch.nan)  # rank 0 tells
        return token_logprobs(logits, following_ids)

    def _sample(self, logits: Tensor, laid_out: StepRows, rows: Rows) -> Drawn | None:
        """Rank 0 samples, and all ranks get the ids: they are the next step's inputs."""
        sampling = laid_out.sampling_rows
        drawn = None
        if self.collective.rank == 0:
            indices = rows.known[sampling] - rows.prompt[sampling]
            drawn = self._sampler.sample(logits, sampling, indices, rows.sampling, self._last_token)
        if self.collective.world_size > 1:
            ids = drawn.ids if drawn is not None else self._last_token.new_empty(len(sampling))
            self.collective.broadcast(ids)
            if drawn is None:
                self._last_token[self._upload(sampling)] = ids
        return drawn

    def _new_sampler(self, max_rows: int) -> Sampler:
        if choose(None, self._last_token) != "triton":
            return HostSampler()
        from headrace_server.sampling.on_gpu import DeviceSampler

        return DeviceSampler(max_rows, self.config.vocab_size, self._device.torch_device, self._device.upload)

    @torch.inference_mode()
    def fill_pool(self) -> None:
        """Random keys and values everywhere, for measuring steps whose prompts nobody computed."""
        for cache in self._caches():
            cache.normal_()

    def _caches(self) -> list[Tensor]:
        return [cache for layer in self._layers for cache in (layer.keys, layer.values)]

    def _upload(self, values: Ints) -> Tensor:
        return self._device.upload([values])[0]


@dataclass(frozen=True, slots=True)
class TorchStep:
    """A step that torch has been given."""

    marks: tuple[Mark, Mark, Mark]  # it began; it had its logits; it had sampled
    samples: Drawn | None
    arrive: Callable[[], list[NDArray]]  # the samples' tensors
    told: Callable[[], list[Floats]]

    def land(self) -> Computed:
        began, forwarded, sampled = self.marks
        sampled.wait()
        samples = self.samples.on_host(self.arrive()) if self.samples is not None else None
        return Computed(samples, self.told(), forwarded.us_since(began), sampled.us_since(forwarded))
