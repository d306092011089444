"""Decode steps of a whole model, by the server's own runner: random weights in the shape of Llama 3.1 8B."""

import json
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from headrace_server.compute.interface import PoolPlan
from headrace_server.compute.on_torch import TorchCompute
from headrace_server.devices.interface import Device
from headrace_server.distributed.collective import Alone
from headrace_server.flags import parse_serve
from headrace_server.gpu_check.chip import Chip
from headrace_server.gpu_check.kernels import OVER
from headrace_server.gpu_check.report import Line, Report
from headrace_server.load import torch_compute
from headrace_server.models.registry import read_config
from headrace_server.runner import Runner
from headrace_server.sampling.parameters import SamplingParameters
from headrace_server.step import NewRow, Step, StepResult
from headrace_server.weights.invented import InventedCheckpoint

LLAMA_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
TINY = {
    **LLAMA_8B,
    "vocab_size": 130,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
ROWS, CONTEXT, STEPS = 256, 1024, 60
SHARE_GOAL = 0.80
MOST_IDLE = 0.01
IN_FLIGHT = 2
"""Steps that a router keeps under way."""


@dataclass(frozen=True)
class Timing:
    """Of decode steps, one after the other. Microseconds a step."""

    wall: float
    device: float
    launch: float  # what giving it to the device took of the host

    @property
    def idle(self) -> float:
        """Share of the time in which the device had nothing to do."""
        return max(1 - self.device / self.wall, 0.0)


def check_whole_model(device: Device, chip: Chip, report: Report, tiny: bool, over: Callable[[], bool]) -> None:
    """With and without recorded steps, and how long the device stood idle."""
    section = (
        f"decode steps of {'a tiny model' if tiny else 'an 8B model'}, random weights: beside reading weights and KV"
    )
    rows, context = (2, 20) if tiny else (ROWS, CONTEXT)
    for name, recorded in (("recorded", True), ("launched kernel by kernel", False)):
        title = f"{rows} rows of {context}, {name}"
        if over():
            report.add(Line(section, title, note=OVER))
            continue
        report.attempt(section, title, partial(_check, device, chip, section, title, recorded, tiny))
        device.relieve()


def _check(device: Device, chip: Chip, section: str, title: str, recorded: bool, tiny: bool) -> list[Line]:
    rows, context, steps = (2, 20, 4) if tiny else (ROWS, CONTEXT, STEPS)
    compute = _model(device, TINY if tiny else LLAMA_8B, rows if recorded else 0, tiny)
    timing, problem = _decode(Runner(compute), rows, context, steps)
    moved = _weight_bytes(compute) + rows * context * compute.kv_bytes_per_token
    line = Line(
        section,
        title,
        timing.wall,
        moved / timing.wall / 1e3,
        share=chip.share_of_copy(moved, timing.wall),
        goal=SHARE_GOAL if recorded and not tiny else None,
        right=problem is None,
        note=problem or f"device idle {timing.idle:.1%} of the time, host busy {timing.launch:,.0f} µs a step",
    )
    if not recorded or tiny:
        return [line]
    return [line, Line(section, "  device at work", share=1 - timing.idle, goal=1 - MOST_IDLE)]


def _model(device: Device, config: dict[str, object], recorded: int, tiny: bool) -> TorchCompute:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(config))
        backend = ["--attention-backend", "triton"] if tiny else []
        words = ["--model-dir", directory, "--listen", "127.0.0.1:0", "--cuda-graphs", str(recorded), *backend]
        flags = parse_serve(words)
        checkpoint = InventedCheckpoint(torch.float16 if tiny else torch.bfloat16, device.torch_device)
        return torch_compute(flags, read_config(flags.model_dir), checkpoint, device, Alone())


def _weight_bytes(compute: TorchCompute) -> int:
    """What a step reads of the weights: all but the embedding, of which it reads a row a token."""
    config, size = compute.config, 2
    heads = config.num_heads + 2 * config.num_kv_heads
    attention = config.hidden_size * config.head_dim * (heads + config.num_heads)
    layer = attention + 3 * config.hidden_size * config.intermediate_size
    return size * (len(config.layers) * layer + config.hidden_size * config.vocab_size)


def _decode(runner: Runner, rows: int, context: int, steps: int) -> tuple[Timing, str | None]:
    """Greedy and sampled rows by turns; the second value: what failed first."""
    compute = runner.compute
    assert isinstance(compute, TorchCompute)
    blocks = -(-(context + steps + 2) // compute.block_size)
    runner.prepare(PoolPlan(rows * blocks, rows, blocks * compute.block_size, 2 * rows))
    compute.fill_pool()
    tables = np.random.default_rng(1).permutation(rows * blocks)
    numbers, per_row = np.arange(rows), np.full(rows, blocks)
    nothing = np.empty(0, np.int64)
    ways = (SamplingParameters(), SamplingParameters(temperature=0.8))
    prompt = np.random.default_rng(2).integers(0, compute.config.vocab_size, context)
    newcomers = tuple(NewRow(row, 1, prompt, 0, context - 1, ways[row % 2]) for row in range(rows))
    results = [runner.execute(Step.of(1, newcomers, numbers, np.ones(rows, np.int64), nothing, per_row, tables))]
    while runner.improve():
        pass
    under_way: deque[Callable[[], StepResult]] = deque()
    launching = 0.0
    began = time.perf_counter()
    for number in range(steps):
        before = time.perf_counter()
        under_way.append(runner.launch(Step.of(number + 2, (), nothing, nothing, numbers, per_row, tables)))
        launching += time.perf_counter() - before
        if len(under_way) == IN_FLIGHT:
            results.append(under_way.popleft()())
    results.extend(land() for land in under_way)
    wall = (time.perf_counter() - began) * 1e6 / steps
    spent = [result.forward_us + result.sampling_us for result in results[1:]]
    problems = (result.error or next(iter(result.row_errors.values()), None) for result in results)
    return Timing(wall, sum(spent) / steps, launching * 1e6 / steps), next(filter(None, problems), None)
