"""Kernels that were compiled ahead of time are those that a server asks for, whatever its sizes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from int4_checkpoints import write
from tiny_models import TinyModel, llama

# What a server with other limits compiles: the same code, another process, other numbers of rows, tokens and blocks.
OTHER_LIMITS = """
import sys
from headrace_server import flags, warm
from headrace_server.memory import Limits
parsed = flags.parse_serve([*sys.argv[1:], "--device", "cuda", "--listen", "127.0.0.1:0"])
flags.use_kernel_cache(parsed)
print(warm.compile_for("sm_90", parsed, Limits(7, 33, 100, None, host_bytes=2**20)))
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize("flags", [[], ["--batch-invariant"]], ids=["plain", "batch-invariant"])
def test_a_server_finds_every_kernel_compiled(flags: list[str], tiny_llama: TinyModel, tmp_path: Path) -> None:
    model = ["--model-dir", str(tiny_llama.directory), "--kernel-cache", str(tmp_path), *flags]
    warmed = run("-m", "headrace_server", "warm", "--target", "sm_90", *model)
    assert warmed.returncode == 0, warmed.stderr
    compiled = list(tmp_path.rglob("*.cubin"))
    assert f"sm_90: {len(compiled)} kernels of {tiny_llama.directory.name} in " in warmed.stdout
    assert "KV pool" not in warmed.stderr, "there is none"
    served = run("-c", OTHER_LIMITS, *model)
    assert served.returncode == 0, served.stderr
    assert int(served.stdout) > 10
    assert sorted(tmp_path.rglob("*.cubin")) == sorted(compiled)
    products = [path for path in compiled if path.name == "_invariant_linear_kernel.cubin"]
    assert bool(products) == bool(flags), "they are compiled where they are used"


def test_ranks_that_read_a_checkpoint_ask_for_what_was_compiled_without_it(tmp_path: Path) -> None:
    """Weights in act-order, tensors with addresses, and no graphs, which would have come by every number of rows."""
    plain = llama(tmp_path / "source", intermediate_size=128, num_hidden_layers=1).directory
    config = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}
    model = ["--model-dir", str(write(plain, tmp_path, config, act_order=True).quantized)]
    model += ["--kernel-cache", str(tmp_path / "kernels")]
    warmed = run("-m", "headrace_server", "warm", "--num-shard", "2", "--cuda-graphs", "0", *model)
    assert warmed.returncode == 0, warmed.stderr
    compiled = sorted(tmp_path.rglob("*.cubin"))
    started = run(str(Path(__file__).parent / "addressed_start.py"), "2", *model)
    assert started.returncode == 0, started.stderr
    assert int(started.stdout) > 30
    assert sorted(tmp_path.rglob("*.cubin")) == compiled


def test_a_chip_that_is_not_known_is_an_error_in_one_line(tiny_llama: TinyModel, tmp_path: Path) -> None:
    model = ["--model-dir", str(tiny_llama.directory), "--kernel-cache", str(tmp_path)]
    refused = run("-m", "headrace_server", "warm", "--target", "sm_90,sm_12", *model)
    assert refused.returncode == 1
    assert "--target sm_12: must be one of sm_80, sm_86, sm_89, sm_90, sm_100, sm_120" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_what_no_gpu_keeps_is_refused_before_anything_is_compiled(tiny_llama: TinyModel) -> None:
    refused = run("-m", "headrace_server", "warm", "--model-dir", str(tiny_llama.directory), "--kv-cache-dtype", "int8")
    assert refused.returncode == 1
    assert "--kv-cache-dtype int8: only a CPU keeps such a cache" in refused.stderr
