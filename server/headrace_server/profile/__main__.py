"""The command line: `python -m headrace_server.profile --model-dir DIRECTORY [--shapes …] [flags of serve]`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace_kernels import native
from headrace_server import log
from headrace_server.compute.on_cpu import CpuCompute
from headrace_server.errors import ConfigError, HeadraceError, report
from headrace_server.flags import parse_serve
from headrace_server.load import load_runner
from headrace_server.models.registry import read_config
from headrace_server.profile.floors import kinds_of, needs_of_step, weight_bytes
from headrace_server.profile.machine import measure_machine
from headrace_server.profile.measure import WARM, measure
from headrace_server.profile.memory import STEADY_STEPS, measure_held, measure_steady
from headrace_server.profile.report import (
    held_line,
    held_values,
    machine_line,
    machine_values,
    profile_values,
    steady_line,
    steady_values,
    table,
)
from headrace_server.profile.shapes import Shape, parse_shapes
from headrace_server.profile.steps import Steps
from headrace_server.runner import Runner

SHAPES = "1x100,48x100,48x1000,128x2048,0x512"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; returns the process's exit code."""
    options, serve_flags = _parser().parse_known_args(argv)
    log.configure(json_output=False)
    try:
        if options.runs < 1:
            raise ConfigError(f"--runs {options.runs} must be at least 1")
        shapes = parse_shapes(options.shapes)
        flags = parse_serve([*serve_flags, "--listen", "127.0.0.1:0"])  # nobody listens
        runner = load_runner(flags, read_config(flags.model_dir, flags.stretch))
        values = profile(runner, shapes, options.runs, options.temperature)
    except HeadraceError as error:
        return report(error)
    if options.json is not None:
        options.json.write_text(json.dumps(values, indent=1) + "\n")
    return 0


def profile(runner: Runner, shapes: Sequence[Shape], runs: int, temperature: float) -> dict[str, object]:
    """Print as it goes; returns the same as values. Raises HeadraceError if a shape can't be had."""
    compute = runner.compute
    if not isinstance(compute, CpuCompute):
        raise ConfigError("only steps of the C++ kernels are profiled; use --device cpu with float32 or bfloat16")
    weights = compute.weights
    machine = measure_machine(kinds_of(weights), weights.dtype)
    print(machine_line(machine, weights.dtype, native.num_threads(), native.isa()), flush=True)

    steady_shape = next((shape for shape in shapes if shape.rows), None)
    sizes = {shape: 0 if shape.rows == 0 else WARM + runs for shape in shapes}
    if steady_shape is not None:
        sizes[steady_shape] = max(sizes[steady_shape], STEADY_STEPS)
    steps = Steps(runner, sizes, temperature)

    profiles = []
    for shape in shapes:
        measured = measure(steps, compute, shape, runs)
        needs = needs_of_step(weights, measured.extent, measured.sampled, compute.kv_bytes_per_token)
        print(f"\n{table(measured, needs, machine)}", flush=True)
        profiles.append(profile_values(measured, needs, machine))
    print()
    held = measure_held(weight_bytes(weights), steps.num_blocks * compute.block_size * compute.kv_bytes_per_token)
    steady = None if steady_shape is None else measure_steady(steps, steady_shape)
    if steady is not None:
        print(steady_line(steady))
    print(held_line(held))
    return {
        "model": runner.config.model_type,
        "dtype": compute.dtype,
        "threads": native.num_threads(),
        "instruction_set": native.isa(),
        "machine": machine_values(machine, weights.dtype),
        "profiles": profiles,
        "steady_state": None if steady is None else steady_values(steady),
        "memory": held_values(held),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m headrace_server.profile",
        description="Where a step's time goes on a CPU, beside its floor. Other flags are those of `headrace serve`'s "
        "shard: --model-dir, --dtype, --quantize, --num-threads, --block-size.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--shapes", default=SHAPES, help=f"rows x context, 0 rows for a prompt (default {SHAPES})")
    add("--runs", type=int, default=15, help="steps of each shape that count (default 15)")
    add("--temperature", type=float, default=0.0, help="of sampling; 0 (the default) is greedy")
    add("--json", type=Path, metavar="FILE", help="write the figures there, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
