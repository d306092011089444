"""Which way a CPU's linear layers are made."""

from pathlib import Path

from headrace_server.errors import ConfigError
from headrace_server.quantization import int4, int8
from headrace_server.quantization.dense import DenseLinears
from headrace_server.quantization.expanded import ExpandedLinears
from headrace_server.quantization.parts import LinearMaker
from headrace_server.quantization.stored import Stored, StoredEightBits, StoredInt4, check_asked
from headrace_server.quantization.unpacked import UnpackedLinears
from headrace_server.weights.source_blocks import SourceBlocks


def linear_maker(stored: Stored | None, asked: str | None, model_dir: Path, dtype: int) -> LinearMaker:
    """For a checkpoint that is quantized as `stored`, None meaning plain weights, and what --quantize asks for. Raises
    ConfigError if there is no such way."""
    check_asked(stored, asked)
    if isinstance(stored, StoredInt4):
        return UnpackedLinears(dtype, stored)
    if isinstance(stored, StoredEightBits):
        return ExpandedLinears(dtype, stored)
    if asked is None:
        return DenseLinears(dtype)
    if asked not in _METHODS:
        raise ConfigError(f"--quantize {asked}: only a GPU computes with such weights; on a CPU take int8 or int4")
    return _METHODS[asked].method(SourceBlocks.of(model_dir))


_METHODS = {"int8": int8, "int4": int4}
