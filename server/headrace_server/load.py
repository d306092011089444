"""Turns flags and a model directory into a Runner: picks device and type, reads the weights. Imports torch only where
torch computes."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace_kernels import native
from headrace_kernels.decoder import MOST_HEAD_DIM, MOST_WINDOWS
from headrace_kernels.kv_cache import default_block_size, kv_cache_shape
from headrace_server import __version__
from headrace_server.compute.interface import Compute
from headrace_server.distributed.alike import Setting
from headrace_server.distributed.collective import Alone, Collective
from headrace_server.errors import CapacityError, ConfigError, first_line, lacks_memory
from headrace_server.flags import ServeFlags, use_kernel_cache
from headrace_server.log import LOGGER
from headrace_server.models.config import ModelConfig
from headrace_server.models.split import BLOCKS_INNER_UNIT, INNER_UNIT, Split
from headrace_server.runner import Runner
from headrace_server.weights.files import CheckpointFiles

if TYPE_CHECKING:
    import torch

    from headrace_server.compute.on_cpu import AmongRanks
    from headrace_server.compute.on_torch import TorchCompute
    from headrace_server.devices.interface import Device
    from headrace_server.weights.safetensors import Checkpoint

CPU_TYPES = {"float32": native.FLOAT32, "bfloat16": native.BFLOAT16}
"""What the C++ kernels compute with."""


def load_runner(flags: ServeFlags, config: ModelConfig) -> Runner:
    """Raises ConfigError or WeightsError. Takes as long as reading the weights."""
    began = time.monotonic()
    device = _device(flags.device, flags.local_rank)
    dtype = flags.dtype or ("bfloat16" if device != "cpu" or _cpu_does_bfloat16() else "float32")
    if device == "cpu":
        native.set_num_threads(flags.num_threads)
        given = {"--cuda-memory-fraction": flags.memory_fraction < 1, "--cuda-graphs": flags.cuda_graphs is not None}
        for flag in filter(given.get, given):
            LOGGER.warning("%s has no effect: this shard computes on a CPU", flag)
    with out_of_memory_is_a_sentence(flags):
        collective = _collective(flags, config, dtype, device)
        if _in_cpp(flags, config, dtype, device, collective):
            compute = on_cpu(flags, config, CPU_TYPES[dtype], collective)
        else:
            compute = on_torch(flags, config, dtype, device, collective)
    LOGGER.info(
        "loaded %s from %s in %.1f s: %s on %s, blocks of %d tokens",
        config.model_type,
        flags.model_dir,
        time.monotonic() - began,
        dtype,
        compute.device,
        compute.block_size,
    )
    return Runner(compute)


def on_cpu(flags: ServeFlags, config: ModelConfig, dtype: int, collective: Collective) -> Compute:
    from headrace_server.compute.on_cpu import CpuCompute
    from headrace_server.models.packed import packed_weights
    from headrace_server.quantization.maker import linear_maker
    from headrace_server.weights.arrays import ArrayCheckpoint

    if flags.batch_invariant:
        LOGGER.info("--batch-invariant changes nothing on a CPU: a sequence has the same bits in every batch anyway")
    block_size = _block_size(flags, config, "cpu")
    linears = linear_maker(config.quantization, flags.quantize, flags.model_dir, dtype)
    inner_unit = BLOCKS_INNER_UNIT if flags.quantize in ("int8", "int4") else INNER_UNIT
    split = Split.of(config, collective.rank, collective.world_size, inner_unit)
    with ArrayCheckpoint(flags.model_dir, config.sizes) as checkpoint:
        weights = packed_weights(config, split, checkpoint, dtype, linears)
    if description := linears.description():
        LOGGER.info("%s", description)
    if flags.kv_cache_dtype not in (None, "int8"):
        LOGGER.warning(
            "--kv-cache-dtype %s: a CPU keeps keys and values as int8, in as many bytes and nearer to what they were",
            flags.kv_cache_dtype,
        )
    eight_bits = flags.kv_cache_dtype is not None
    return CpuCompute(config, weights, block_size, eight_bit_cache=eight_bits, among=_among(flags, split, collective))


def _among(flags: ServeFlags, split: Split, collective: Collective) -> "AmongRanks | None":
    if collective.world_size == 1:
        return None
    import torch

    from headrace_server.compute.on_cpu import AmongRanks
    from headrace_server.distributed.arrays import ArrayCollective
    from headrace_server.distributed.stand_in import StandIn

    torch.set_num_threads(1)  # it only adds up and passes on; threads of its own would wait on the kernels' cores
    stand_in = StandIn(collective, torch.device("cpu"))
    return AmongRanks(ArrayCollective(collective), split.vocabulary_widths, flags.local_world_size, stand_in)


def on_torch(
    flags: ServeFlags, config: ModelConfig, dtype_name: str, device_name: str, collective: Collective
) -> Compute:
    if device_name == "cpu" and (flag := _asks_for_cpp(flags)):
        why_not = _why_not_in_cpp(flags, config, dtype_name)
        raise ConfigError(f"{flag}: {why_not or 'needs the C++ kernels, which another rank cannot use; it says why'}")
    import torch

    from headrace_server.devices.host import HostDevice
    from headrace_server.weights.safetensors import Checkpoint

    dtype = getattr(torch, dtype_name)
    device: Device
    if device_name == "cpu":
        torch.set_num_threads(flags.num_threads)
        device = HostDevice(flags.local_world_size)
    else:
        from headrace_server.devices.cuda import CudaDevice

        use_kernel_cache(flags)
        device = CudaDevice(torch.device(device_name).index)
    with Checkpoint(flags.model_dir, dtype, device.torch_device, config.sizes) as checkpoint:
        return torch_compute(flags, config, checkpoint, device, collective)


def torch_compute(
    flags: ServeFlags, config: ModelConfig, checkpoint: "Checkpoint", device: "Device", collective: Collective
) -> "TorchCompute":
    """A model of what the checkpoint holds, on the device."""
    from headrace_server.attention.choose import attention_backend
    from headrace_server.attention.interface import HeadCounts
    from headrace_server.compute.on_torch import TorchCompute, TorchOptions
    from headrace_server.models.registry import model_class
    from headrace_server.quantization.method import quantization_method

    place = device.torch_device
    if flags.kv_cache_dtype == "int8" and place.type != "cpu":
        raise ConfigError("--kv-cache-dtype int8: only a CPU keeps such a cache; take fp8_e4m3fn, or leave it out")
    split = Split.of(config, collective.rank, collective.world_size)
    heads = HeadCounts(len(split.query_heads), len(split.kv_heads), config.head_dim)
    block_size = _block_size(flags, config, place.type)
    cache_dtype = _torch_cache_dtype(flags.kv_cache_dtype) or checkpoint.dtype
    backend = attention_backend(
        flags.attention_backend, heads, block_size, place, checkpoint.dtype, cache_dtype, flags.batch_invariant
    )
    LOGGER.info("attention by %s", backend.name)
    method = quantization_method(config.quantization, flags.quantize, place, flags.batch_invariant)
    model = model_class(config)(config, split, checkpoint, method, backend, place, collective)
    return TorchCompute(
        model, backend, checkpoint.dtype, device, TorchOptions(flags.memory_fraction, flags.cuda_graphs, cache_dtype)
    )


def _torch_cache_dtype(name: str | None) -> "torch.dtype | None":
    import torch

    return {"fp8_e4m3fn": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}.get(name or "")


def _collective(flags: ServeFlags, config: ModelConfig, dtype_name: str, device_name: str) -> Collective:
    """Waits for the other ranks, if there are any."""
    if flags.rendezvous is None:
        return Alone()
    import torch

    from headrace_server.distributed.join import join

    dtype, device = getattr(torch, dtype_name), torch.device(device_name)
    settings = settings_of_ranks(flags, config, dtype_name, device.type)
    return join(flags.rendezvous, dtype, device, flags.remove_socket, settings=settings, in_order=flags.batch_invariant)


def settings_of_ranks(flags: ServeFlags, config: ModelConfig, dtype: str, device_type: str) -> dict[str, Setting]:
    """What this rank computes with, as far as the others must, too."""
    with CheckpointFiles(flags.model_dir) as checkpoint:
        model = hashlib.sha256(f"{config} {checkpoint.fingerprint()}".encode()).hexdigest()[:8]
    stretch = flags.stretch
    given = {
        "the version of headrace-server": __version__,
        "--device": device_type,
        "--dtype": dtype,
        "--quantize": flags.quantize,
        "--kv-cache-dtype": flags.kv_cache_dtype,
        "--block-size": str(_block_size(flags, config, device_type)),
        "--batch-invariant": "given" if flags.batch_invariant else None,
        # A step is padded to the rows of its graph, on every rank.
        "--cuda-graphs": None if flags.cuda_graphs is None else ",".join(map(str, flags.cuda_graphs)) or "0",
        "--rope-scaling": stretch.scaling if stretch else None,
        "--rope-factor": str(stretch.factor) if stretch else None,
    }
    settings = {name: Setting(value or "not given", value or "") for name, value in given.items()}
    return {**settings, "--model-dir": Setting(f"{flags.model_dir} (contents {model})", model)}


def _decoder_can(config: ModelConfig) -> bool:
    windows = {layer.sliding_window for layer in config.layers}
    return config.head_dim <= MOST_HEAD_DIM and len(windows) <= MOST_WINDOWS


def _in_cpp(flags: ServeFlags, config: ModelConfig, dtype: str, device: str, collective: Collective) -> bool:
    """Whether all ranks compute with the C++ kernels: they add up other things than torch's layers do."""
    here = device == "cpu" and _why_not_in_cpp(flags, config, dtype) is None
    everywhere = bool(collective.least(int(here)))
    if here and not everywhere:
        LOGGER.warning("another rank can't compute with the C++ kernels, so none of them does")
    return everywhere


def _why_not_in_cpp(flags: ServeFlags, config: ModelConfig, dtype: str) -> str | None:
    """Why the C++ kernels do not compute this on a CPU, as far as this rank knows."""
    if flags.attention_backend != "auto":
        return f"--attention-backend {flags.attention_backend} computes without the C++ kernels; leave one of them out"
    if not _decoder_can(config):
        return "the C++ kernels can't compute this model; leave it out"
    if dtype not in CPU_TYPES:
        return f"needs --dtype {' or '.join(CPU_TYPES)}, not {dtype}"
    if not native.available():
        return f"needs the C++ kernels: {native.why_unavailable()}"
    return None


def _asks_for_cpp(flags: ServeFlags) -> str | None:
    """The flag that on a CPU is the C++ kernels' alone to obey; Triton's interpreter can do some of them."""
    if flags.quantize in ("int8", "int4"):
        return f"--quantize {flags.quantize}"
    if flags.attention_backend == "triton":
        return None
    if flags.kv_cache_dtype is not None:
        return f"--kv-cache-dtype {flags.kv_cache_dtype}"
    return "--batch-invariant" if flags.batch_invariant else None


def _block_size(flags: ServeFlags, config: ModelConfig, device_type: str) -> int:
    block_size = flags.block_size or default_block_size(device_type)
    try:
        kv_cache_shape(1, block_size, config.num_kv_heads, config.head_dim)
    except ValueError as error:
        raise ConfigError(f"--block-size: {error}") from None
    return block_size


@contextmanager
def out_of_memory_is_a_sentence(flags: ServeFlags) -> Iterator[None]:
    """Raises CapacityError instead of whatever says so."""
    try:
        yield
    except Exception as error:
        if not lacks_memory(error):
            raise
        raise CapacityError(
            f"the model of {flags.model_dir} does not fit into memory: {first_line(error)}; "
            "correct the sizes in config.json (such as 'max_position_embeddings'), or take a smaller model"
        ) from None


def _device(wanted: str, local_rank: int) -> str:
    """ "cpu", or the GPU of this rank among those of its machine: "cuda:0". Asks torch only if there is a GPU to ask
    about, for importing it takes seconds."""
    if wanted == "cpu" or (wanted == "auto" and not _gpu_devices()):
        return "cpu"
    import torch

    if torch.cuda.is_available():
        if local_rank >= (gpus := torch.cuda.device_count()):
            raise ConfigError(f"--local-rank {local_rank}: torch sees {gpus} GPUs here; start at most {gpus} ranks")
        return f"cuda:{local_rank}"
    if wanted == "cuda":
        raise ConfigError("--device cuda: torch sees no GPU; use --device cpu")
    return "cpu"


def _gpu_devices(dev: Path = Path("/dev")) -> bool:
    """Whether the kernel shows a GPU that torch may be able to use: NVIDIA's or AMD's."""
    return any((dev / name).exists() for name in ("nvidiactl", "nvidia0", "dxg", "kfd"))


def _cpu_does_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether it is the faster type for rows that decode. Where the processor lacks instructions, the C++ kernels widen
    it on the way to float32: with many rows 9 to 26 % slower than that, but half of the bytes, which few rows wait for.
    In plain torch, and without vectors, the instructions decide."""
    if native.available() and native.isa() != "baseline":
        return True
    for line in cpuinfo.read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return not {"avx512_bf16", "amx_bf16", "bf16"}.isdisjoint(line.split())
    return False
