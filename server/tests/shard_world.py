"""A Runner with a router's bookkeeping around it: block tables, chunks, decodes. Seeded, in process, no protocol."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from timed_device import TimedDevice

from headrace_kernels.decoder import StepInputs, StepOutputs, Times
from headrace_server.compute.on_cpu import CpuCompute
from headrace_server.compute.on_torch import TorchCompute, TorchOptions
from headrace_server.distributed.collective import Alone
from headrace_server.flags import ServeFlags, parse_serve
from headrace_server.load import load_runner, on_torch
from headrace_server.memory import Limits
from headrace_server.models.registry import read_config
from headrace_server.quantization import method as methods
from headrace_server.quantization.method import QuantizationMethod
from headrace_server.runner import Runner
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import NewRow, Step, StepResult
from headrace_server.warmup import warm_up

GREEDY = SamplingParameters()
BLOCK_SIZE = 16
NO_ROWS = np.empty(0, np.int64)


def load(directory: Path, *flags: str, dtype: str = "float32") -> Runner:
    """The Runner of a model directory, before Warmup."""
    parsed = _flags(directory, *flags, "--dtype", dtype)
    return load_runner(parsed, read_config(parsed.model_dir))


def load_on_torch(directory: Path, *flags: str, method: QuantizationMethod | None = None) -> Runner:
    """The same as it runs on a GPU, on the CPU. `method`: of quantization, if it shall be another than a CPU's."""
    parsed = _flags(directory, *flags)
    with pytest.MonkeyPatch.context() as patch:
        if method is not None:
            patch.setattr(methods, "quantization_method", lambda *_: method)
        return Runner(on_torch(parsed, read_config(parsed.model_dir), "float32", "cpu", Alone()))


def load_on_device(directory: Path, device: TimedDevice | None = None) -> Runner:
    """The same on a device that works beside the host and records graphs."""
    return on_device(load_on_torch(directory), device)


def on_device(runner: Runner, device: TimedDevice | None = None) -> Runner:
    """The same model there."""
    compute = runner.compute
    assert isinstance(compute, TorchCompute)
    return Runner(TorchCompute(compute.model, compute.backend, torch.float32, device or TimedDevice(), TorchOptions()))


SMALL: Any = {"max_rows": 2, "max_total_tokens": 2 * BLOCK_SIZE}
"""A World for kernels that are interpreted: its warm-up is short."""


def sampled_logits(runner: Runner, prompt: list[int]) -> np.ndarray:
    """[1, vocab_size] float32: behind the prompt."""
    seen: list[np.ndarray] = []
    with pytest.MonkeyPatch.context() as patch:
        world = World(runner, **SMALL)
        on_logits(runner, patch, lambda values: seen.append(values.copy()))
        world.step(new={0: (prompt, GREEDY)}, chunks={0: len(prompt)})
    return seen[0]


COMPUTES = {"C++": load, "torch": load_on_torch, "device": load_on_device}


def _flags(directory: Path, *flags: str) -> ServeFlags:
    arguments = ["--model-dir", str(directory), "--uds-path", "unused", "--num-threads", "1"]
    return parse_serve([*arguments, "--block-size", str(BLOCK_SIZE), *flags])


@dataclass
class Held:
    """One request: its tokens so far, and its blocks."""

    tokens: list[int]
    prompt_length: int
    blocks: list[int]
    computed: int = 0
    epoch: int = 0
    results: list[StepResult] = field(default_factory=list)

    @property
    def answer(self) -> list[int]:
        return self.tokens[self.prompt_length :]


class World:
    """Plans steps as a router would, and remembers what came back."""

    def __init__(
        self, runner: Runner, *, max_rows: int = 16, max_total_tokens: int = 0, seed: int = 0, host_bytes: int = 0
    ) -> None:
        self.runner = runner
        num_blocks = max_rows * -(-(max_total_tokens or runner.config.max_positions) // BLOCK_SIZE)
        self._warm_up(Limits(max_rows, 16, max_total_tokens, num_blocks, host_bytes))
        while runner.improve():
            pass
        self.free = list(range(num_blocks))
        random.Random(seed).shuffle(self.free)  # neighbours in a sequence are strangers in the pool
        self.rows: dict[int, Held] = {}
        self.copies: list[tuple[int, int]] = []
        self.steps = 0
        self.epochs = 0

    def step(
        self,
        *,
        new: dict[int, tuple[list[int], SamplingParameters]] | None = None,
        chunks: dict[int, int] | None = None,
        decodes: Sequence[int] = (),
        generated: dict[int, int] | None = None,
        shared: dict[int, tuple[int, int]] | None = None,
        swaps_out: Sequence[tuple[int, int]] = (),
        swaps_back: Sequence[tuple[int, int]] = (),
    ) -> StepResult:
        """One step: `new` row → (tokens, parameters); `chunks` row → tokens; `decodes` rows; `shared` new row → (row
        whose blocks it starts with, tokens that are computed in them: of a block that is not whole it gets a copy);
        swaps as in `Step`."""
        self.copies = []
        chunks = chunks or {}
        new_rows = tuple(
            self._admit(row, *what, (generated or {}).get(row, 0), *(shared or {}).get(row, (row, 0)))
            for row, what in (new or {}).items()
        )
        self.steps += 1
        tables = [self._table(row, chunks.get(row, 1)) for row in (*chunks, *decodes)]
        step = Step.of(
            number=self.steps,
            new_rows=new_rows,
            chunk_rows=np.array(list(chunks), np.int64),
            chunk_tokens=np.array(list(chunks.values()), np.int64),
            decode_rows=np.array(decodes, np.int64),
            table_lengths=np.array([len(table) for table in tables]),
            table_blocks=np.array([block for table in tables for block in table], np.int64),
            swaps_out=np.array(swaps_out, np.int64).reshape(-1, 2),
            swaps_back=np.array(swaps_back, np.int64).reshape(-1, 2),
            copies=np.array(self.copies, np.int64).reshape(-1, 2),
        )
        result = self.runner.execute(step)
        self._note(result, chunks, decodes)
        return result

    def generate(
        self,
        prompts: dict[int, list[int]],
        num_tokens: int,
        *,
        chunk: int = 1000,
        parameters: dict[int, SamplingParameters] | None = None,
    ) -> dict[int, list[int]]:
        """Run requests together, each in its row, prompts in chunks of at most `chunk`; row → answer."""
        new = {row: (prompt, (parameters or {}).get(row, GREEDY)) for row, prompt in prompts.items()}
        while any(row not in self.rows or len(self.rows[row].answer) < num_tokens for row in prompts):
            arriving = {row: what for row, what in new.items() if row not in self.rows}
            left = {row: self._left(row, new[row][0]) for row in prompts}
            result = self.step(
                new=arriving,
                chunks={row: min(count, chunk) for row, count in left.items() if count > 0},
                decodes=[row for row, count in left.items() if count == 0 and len(self.rows[row].answer) < num_tokens],
            )
            assert result.error is None, result.error
            assert not result.row_errors, result.row_errors
        return {row: self.rows[row].answer for row in prompts}

    def _warm_up(self, limits: Limits) -> None:
        warm_up(self.runner, limits)

    def forget(self, row: int) -> None:
        """The request is over; its blocks are free."""
        self.free.extend(self.rows.pop(row).blocks)

    def _left(self, row: int, prompt: list[int]) -> int:
        """Prompt tokens that are still to be computed."""
        return len(prompt) - (self.rows[row].computed if row in self.rows else 0) if self._prefilling(row) else 0

    def _prefilling(self, row: int) -> bool:
        return row not in self.rows or not self.rows[row].answer

    def held_of(self, tokens: list[int], blocks: list[int]) -> Held:
        """All of `tokens` computed in `blocks`, by a row that is gone."""
        return Held(list(tokens), len(tokens), list(blocks), computed=len(tokens))

    def _admit(
        self, row: int, tokens: list[int], parameters: SamplingParameters, generated: int, first: int, computed: int
    ) -> NewRow:
        self.epochs += 1
        blocks = self.rows[first].blocks[: computed // BLOCK_SIZE] if computed else []
        if computed % BLOCK_SIZE:
            self.copies.append((self.rows[first].blocks[len(blocks)], self.free.pop()))
            blocks = [*blocks, self.copies[-1][1]]
        self.rows[row] = Held(list(tokens), len(tokens) - generated, list(blocks), computed, self.epochs)
        return NewRow(row, self.epochs, np.array(tokens, np.int64), generated, computed, parameters)

    def _table(self, row: int, num_tokens: int) -> list[int]:
        sequence = self.rows[row]
        while len(sequence.blocks) * BLOCK_SIZE < sequence.computed + num_tokens:
            sequence.blocks.append(self.free.pop())
        return sequence.blocks

    def _note(self, result: StepResult, chunks: dict[int, int], decodes: Sequence[int]) -> None:
        sampled = iter(result.token_ids.tolist())
        for row in (*chunks, *decodes):
            sequence = self.rows[row]
            sequence.computed += chunks.get(row, 1)
            sequence.results.append(result)
            if result.error is None and sequence.computed >= len(sequence.tokens):
                sequence.tokens.append(next(sampled))


def random_tokens(count: int, seed: int, vocab_size: int = 97) -> list[int]:
    """Seeded token ids."""
    return np.random.default_rng(seed).integers(0, vocab_size, count).tolist()


def forward_logits(world: World, row: int, tokens: list[int], chunk: int) -> torch.Tensor:
    """[len(tokens), vocab_size]: the logits at every position, computed chunk by chunk."""
    seen: list[torch.Tensor] = []
    compute = world.runner.compute
    for start in range(0, len(tokens), chunk):
        count = min(chunk, len(tokens) - start)
        new = {row: (tokens, GREEDY)} if start == 0 else None
        result = world.step(new=new, chunks={row: count})
        assert result.error is None and not result.row_errors, (result.error, result.row_errors)
        assert isinstance(compute, CpuCompute) and compute.decoder is not None
        seen.append(torch.from_numpy(compute.decoder.logits(np.arange(count))))
    return torch.cat(seen)


def on_logits(runner: Runner, patch: pytest.MonkeyPatch, look: Callable[[np.ndarray], None]) -> None:
    """From now on `look` sees, and may change, the logits [rows, vocab_size] of every step before anybody else."""
    compute = runner.compute
    if isinstance(compute, TorchCompute):
        logits = compute.model.logits

        def looked_at(hidden: torch.Tensor) -> torch.Tensor:
            out = logits(hidden)
            look(out.numpy())
            return out

        patch.setattr(compute.model, "logits", looked_at)
        return
    assert isinstance(compute, CpuCompute) and compute.decoder is not None
    forward = compute.decoder.forward

    def forward_looked_at(inputs: StepInputs, times: Times | None = None) -> StepOutputs:
        everything = replace(inputs, logits_wanted=np.ones(len(inputs.sampled), np.bool_))
        out = forward(everything, times)
        if len(inputs.sampled):
            look(out.logits)
        best = np.where(np.isnan(out.logits).any(axis=1), np.nan, out.best_logits).astype(np.float32)
        return StepOutputs(out.best_ids, best, np.ascontiguousarray(out.logits[inputs.logits_wanted]))

    patch.setattr(compute.decoder, "forward", forward_looked_at)
