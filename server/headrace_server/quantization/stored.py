"""How a checkpoint's own weights are quantized, as its JSON files say. No torch: it is checked before torch loads."""

from dataclasses import dataclass
from pathlib import Path

from headrace_server.errors import ConfigError
from headrace_server.fields import Fields

SEPARATE_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Where older tools of either method put what config.json should say."""

GPTQ_ZERO_OFFSETS = {"gptq": 1, "gptq_v2": 0}
"""`checkpoint_format`: what was subtracted from zeros before they were stored."""


@dataclass(frozen=True)
class StoredInt4:
    """4 bits a weight; neighbouring inputs of an output share a scale and a zero."""

    method: str  # "gptq" or "awq"
    group_size: int | None  # inputs; None: all of a layer's
    zero_offset: int = 0  # GPTQ's


def read_stored(model_dir: Path, config: Fields) -> StoredInt4 | None:
    """None: weights are plain. Raises ConfigError naming the field that asks for what is not supported."""
    if (inside := config.nested("quantization_config")) is not None:
        return _read(inside, inside.text("quant_method", "unnamed"))
    for name, method in SEPARATE_FILES.items():
        if (model_dir / name).is_file():
            return _read(Fields.read(model_dir / name), method)
    return None


def check_asked(stored: StoredInt4 | None, asked: str | None) -> None:
    """Raises ConfigError if `--quantize` asks for something else than what the checkpoint is."""
    if asked is None or (stored is not None and asked == stored.method):
        return
    if stored is not None:
        raise ConfigError(f"--quantize {asked}: the checkpoint is quantized already, by {stored.method}; leave it out")
    if asked in _READERS:
        raise ConfigError(
            f"--quantize {asked}: config.json has no quantization_config, so the weights are plain; leave it out, or "
            f"serve a checkpoint that {asked} made"
        )


def _read(fields: Fields, method: str) -> StoredInt4:
    if method not in _READERS:
        raise ConfigError(
            f"config.json: quantization '{method}' is not supported, only {' and '.join(_READERS)} are; use the "
            "unquantized checkpoint"
        )
    return _READERS[method](fields)


def _gptq(fields: Fields) -> StoredInt4:
    _only(fields, "bits", fields.integer("bits"), 4)
    _only(fields, "lm_head", fields.boolean("lm_head", False), False)
    _only(fields, "pack_dtype", fields.text("pack_dtype", "int32"), "int32")
    if fields.nested("dynamic"):
        raise fields.error("dynamic", "gives modules settings of their own; only one for all is supported")
    stored_as = fields.text("checkpoint_format", "gptq")
    if stored_as not in GPTQ_ZERO_OFFSETS:
        raise fields.error("checkpoint_format", f"is '{stored_as}'; supported: {', '.join(GPTQ_ZERO_OFFSETS)}")
    return StoredInt4("gptq", _group_size(fields, "group_size"), GPTQ_ZERO_OFFSETS[stored_as])


def _awq(fields: Fields) -> StoredInt4:
    bits, group_size = (old if fields.has(old) else new for new, old in _AWQ_NAMES)
    _only(fields, bits, fields.integer(bits), 4)
    _only(fields, "version", fields.text("version", "gemm").lower(), "gemm")
    _only(fields, "zero_point", fields.boolean("zero_point", True), True)
    return StoredInt4("awq", _group_size(fields, group_size))


def _group_size(fields: Fields, name: str) -> int | None:
    group_size = fields.whole(name, 128)
    if group_size == -1:
        return None
    if group_size < 1 or group_size % 32:
        raise fields.error(name, f"is {group_size}; supported: multiples of 32, and -1 for one group of all inputs")
    return group_size


def _only(fields: Fields, name: str, value: object, supported: object) -> None:
    if value != supported:
        raise fields.error(name, f"is {str(value).lower()}; supported: {str(supported).lower()}")


_AWQ_NAMES = (("bits", "w_bit"), ("group_size", "q_group_size"))
_READERS = {"gptq": _gptq, "awq": _awq}
