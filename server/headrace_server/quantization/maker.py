"""Which way a CPU's linear layers are made."""

from pathlib import Path

from headrace_server.errors import ConfigError
from headrace_server.quantization import int4, int8
from headrace_server.quantization.dense import DenseLinears
from headrace_server.quantization.parts import LinearMaker
from headrace_server.weights.source_blocks import SourceBlocks


def linear_maker(name: str | None, asked: str | None, model_dir: Path, dtype: int) -> LinearMaker:
    """For a checkpoint that config.json calls quantized by `name`, None meaning plain weights, and that is `asked` to
    be quantized, to "int8" or "int4". Raises ConfigError if there is no such way."""
    if name is not None:
        raise ConfigError(f"config.json: quantization '{name}' is not supported; use the unquantized checkpoint")
    if asked is None:
        return DenseLinears(dtype)
    return {"int8": int8, "int4": int4}[asked].method(SourceBlocks.of(model_dir))
