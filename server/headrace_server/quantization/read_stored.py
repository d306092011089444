"""What a model directory's JSON files say of how its weights are quantized. No torch."""

from collections.abc import Callable
from pathlib import Path

from headrace_server.errors import ConfigError
from headrace_server.fields import Fields
from headrace_server.quantization.read_compressed import read_compressed
from headrace_server.quantization.read_fp8 import read_fbgemm, read_fp8
from headrace_server.quantization.read_int4 import read_awq, read_gptq
from headrace_server.quantization.stored import Stored

INSIDE = ("quantization_config", "compression_config")
"""Fields of config.json; the second is compressed-tensors' old one."""

SEPARATE_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Where older tools of either method put what config.json should say."""


def read_stored(model_dir: Path, config: Fields) -> Stored | None:
    """None: weights are plain. Raises ConfigError naming the field that asks for what is not supported."""
    for name in INSIDE:
        if (inside := config.nested(name)) is not None:
            return _read(inside, inside.text("quant_method", "unnamed"))
    for name, method in SEPARATE_FILES.items():
        if (model_dir / name).is_file():
            return _read(Fields.read(model_dir / name), method)
    return None


def _read(fields: Fields, method: str) -> Stored | None:
    if method not in _READERS:
        *others, last = _READERS
        raise ConfigError(
            f"config.json: quantization '{method}' is not supported, only {', '.join(others)} and {last} are; use the "
            "unquantized checkpoint"
        )
    return _READERS[method](fields)


_READERS: dict[str, Callable[[Fields], Stored | None]] = {
    "gptq": read_gptq,
    "awq": read_awq,
    "fp8": read_fp8,
    "fbgemm_fp8": read_fbgemm,
    "compressed-tensors": read_compressed,
}
