"""`python -m headrace_server.profile` on a model of a few thousand weights: what it prints and counts, not how fast."""

import json
from typing import Any

import pytest
from shard_world import load
from tiny_models import TinyModel, llama

from headrace_kernels.decoder import OPERATIONS
from headrace_kernels.linear import DENSE
from headrace_server.compute.on_cpu import CpuCompute
from headrace_server.errors import ConfigError
from headrace_server.profile.__main__ import main
from headrace_server.profile.floors import Need, needs_of_step
from headrace_server.profile.machine import Machine
from headrace_server.profile.shapes import Extent, Shape, parse_shapes

# Many positions, so that the steps of a steady state fit.
SIZES = {"max_position_embeddings": 1024}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    return llama(tmp_path_factory.mktemp("llama"), **SIZES)


def run(model: TinyModel, *flags: str) -> int:
    return main(["--model-dir", str(model.directory), "--num-threads", "2", "--runs", "3", *flags])


@pytest.fixture(scope="module")
def profiled(model: TinyModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON of three shapes, one step each, so that medians add up."""
    file = tmp_path_factory.mktemp("out") / "profile.json"
    assert run(model, "--runs", "1", "--dtype", "float32", "--shapes", "1x20,5x70,0x40", "--json", str(file)) == 0
    values: dict[str, Any] = json.loads(file.read_text())
    return values


def test_every_operation_is_printed_beside_its_floor(model: TinyModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(model, "--quantize", "int8", "--shapes", "4x30") == 0
    printed = capsys.readouterr().out
    lines = {line.split()[0]: line.split() for line in printed.splitlines() if line.startswith("  ")}
    assert set(OPERATIONS) <= set(lines)
    assert {"all", "call", "sampling", "bookkeeping", "step"} <= set(lines)
    assert "4 rows that decode, context 30" in printed
    assert "GB/s" in printed
    assert "int8" in printed
    assert "steady state, 4x30" in printed
    assert "rest" in printed


def test_times_of_kernels_and_of_the_rest_make_up_the_step(profiled: dict[str, Any]) -> None:
    assert [profile["shape"] for profile in profiled["profiles"]] == ["1x20", "5x70", "0x40"]
    for profile in profiled["profiles"]:
        assert set(profile["operations"]) == set(OPERATIONS)
        assert all(profile["operations"][name]["ms"] > 0 for name in OPERATIONS if name != "quantize")
        parts = [profile[f"{name}_ms"] for name in ("kernels", "call", "sampling", "bookkeeping")]
        assert all(part > 0 for part in parts)
        assert sum(parts) == pytest.approx(profile["step_ms"])
        operations = profile["operations"].values()
        assert sum(one["ms"] + one["waiting_ms"] for one in operations) == pytest.approx(profile["kernels_ms"])
        assert profile["outside_kernels"] == pytest.approx(1 - profile["kernels_ms"] / profile["step_ms"])


def test_the_steady_state_keeps_nothing(profiled: dict[str, Any]) -> None:
    steady = profiled["steady_state"]
    assert steady["shape"] == "1x20"
    assert abs(steady["python_kept_a_step"]) < 100
    assert 0 < steady["python_peak"] < 2**20
    memory = profiled["memory"]
    assert memory["rest"] == memory["resident"] - memory["weights"] - memory["pool"]
    assert memory["peak"] >= memory["resident"] > memory["weights"] > 0


def test_the_pool_is_as_large_as_the_shapes_need(profiled: dict[str, Any], model: TinyModel) -> None:
    """A token of 3 layers, 2 heads of 16 and float32 has 768 bytes; five rows of 70 and a few tokens have 3 blocks."""
    assert profiled["memory"]["pool"] == 5 * 3 * 32 * 768


def test_needs_are_weights_read_once_and_keys_read_by_each_row(model: TinyModel) -> None:
    compute = load(model.directory).compute
    assert isinstance(compute, CpuCompute)
    needs = needs_of_step(compute.weights, Extent(5, 69, 70), 5, compute.kv_bytes_per_token)
    assert needs["down"] == Need(3 * 64 * 112 * 4, {DENSE: 3 * 2 * 5 * 64 * 112})
    assert needs["attention"] == Need(5 * 70 * 768, {DENSE: 3 * 5 * 70 * 4 * 4 * 16})
    assert needs["embedding"].bytes == 5 * 64 * 4
    assert needs["head"].flops == {DENSE: 2 * 5 * 64 * 112}  # 97 columns are 7 panels of 16


def test_windows_hide_keys_from_queries() -> None:
    prompt, decode = Extent(1, 0, 10), Extent(2, 9, 10)
    assert (prompt.keys(None), prompt.pairs(None)) == (10, 55)
    assert (prompt.keys(4), prompt.pairs(4)) == (10, 1 + 2 + 3 + 7 * 4)
    assert (decode.keys(None), decode.pairs(None)) == (20, 20)
    assert (decode.keys(4), decode.pairs(4)) == (8, 8)


def test_a_floor_is_the_longer_of_reading_and_multiplying() -> None:
    machine = Machine(bandwidth=100.0, flops={DENSE: 10.0, 0: 40.0})
    assert Need(500, {DENSE: 10}).floor_s(machine) == 5
    assert Need(500, {DENSE: 40, 0: 80}).floor_s(machine) == 6


def test_shapes_are_rows_and_context() -> None:
    assert parse_shapes("48x1000, 0x512") == [Shape(48, 1000), Shape(0, 512)]
    for wrong in ("48", "x3", "1x", "1x1", "0x0", ""):
        with pytest.raises(ConfigError, match="--shapes"):
            parse_shapes(wrong)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--shapes", "1x2000"], "exceed the 1024 positions"),
        (["--runs", "0"], "--runs 0 must be at least 1"),
        (["--dtype", "float16"], "only steps of the C++ kernels"),
    ],
    ids=["too long", "no runs", "torch"],
)
def test_what_cannot_be_profiled_is_a_sentence(
    flags: list[str], sentence: str, model: TinyModel, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(model, *flags) == 1
    assert sentence in capsys.readouterr().err
