"""Turns flags and a model directory into a Runner: picks device and type, reads the weights."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from headrace_kernels import native
from headrace_server.attention.paged import PagedAttention
from headrace_server.errors import CapacityError, ConfigError
from headrace_server.flags import ServeFlags
from headrace_server.log import LOGGER
from headrace_server.models.config import ModelConfig
from headrace_server.models.registry import model_class
from headrace_server.quantization.method import QuantizationMethod, quantization_method
from headrace_server.runner import Runner
from headrace_server.weights.safetensors import Checkpoint


def load_runner(flags: ServeFlags, config: ModelConfig) -> Runner:
    """Raises ConfigError or WeightsError. Takes as long as reading the weights."""
    began = time.monotonic()
    device = _device(flags.device)
    dtype = _dtype(flags.dtype, device)
    if device.type == "cpu" and flags.memory_fraction < 1:
        LOGGER.warning("--cuda-memory-fraction has no effect: this shard computes on a CPU")
    if device.type == "cpu":
        torch.set_num_threads(flags.num_threads)
        native.set_num_threads(flags.num_threads)
    quantization = _quantization(flags, config, device)
    backend = PagedAttention(config.num_kv_heads, config.head_dim, flags.block_size, device)
    with Checkpoint(flags.model_dir, dtype, device, config.sizes) as checkpoint, out_of_memory_is_a_sentence(flags):
        model = model_class(config)(config, checkpoint, backend, device, quantization)
    LOGGER.info(
        "loaded %s from %s in %.1f s: %s on %s, blocks of %d tokens",
        config.model_type,
        flags.model_dir,
        time.monotonic() - began,
        dtype_name(dtype),
        device,
        backend.block_size,
    )
    return Runner(model, backend, dtype, device)


@contextmanager
def out_of_memory_is_a_sentence(flags: ServeFlags) -> Iterator[None]:
    """torch has several types and texts for it. Raises CapacityError instead of any of them."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or _NO_MEMORY.search(str(error)):
            raise CapacityError(
                f"the model of {flags.model_dir} does not fit into memory: {str(error).splitlines()[0]}; "
                "correct the sizes in config.json (such as 'max_position_embeddings'), or take a smaller model"
            ) from None
        raise


_NO_MEMORY = re.compile(r"alloc|not enough memory|out of memory|overflow", re.IGNORECASE)


def _quantization(flags: ServeFlags, config: ModelConfig, device: torch.device) -> QuantizationMethod:
    if flags.quantize is not None and device.type != "cpu":
        raise ConfigError(f"--quantize {flags.quantize}: only a CPU computes with such weights; leave it out")
    if flags.quantize is not None and not native.available():
        raise ConfigError(f"--quantize {flags.quantize} needs the C++ kernels: {native.why_unavailable()}")
    return quantization_method(config.quantization, flags.quantize, flags.model_dir)


def dtype_name(dtype: torch.dtype) -> str:
    """As the contract names it: "float32"."""
    return str(dtype).removeprefix("torch.")


def _device(wanted: str) -> torch.device:
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch sees no GPU; use --device cpu")
    if wanted == "cuda" or (wanted == "auto" and torch.cuda.is_available()):
        return torch.device("cuda", 0)
    return torch.device("cpu")


def _dtype(wanted: str | None, device: torch.device) -> torch.dtype:
    if wanted is not None:
        return getattr(torch, wanted)
    return torch.bfloat16 if device.type == "cuda" or _cpu_multiplies_bfloat16() else torch.float32


def _cpu_multiplies_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor has instructions for it; without them bfloat16 is slower than float32."""
    for line in cpuinfo.read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(line.split())
    return False
