"""How a checkpoint's own weights are quantized. No torch: it is checked before torch loads."""

from dataclasses import dataclass

from headrace_server.errors import ConfigError


@dataclass(frozen=True)
class StoredInt4:
    """4 bits a weight; neighbouring inputs of an output share a scale and a zero."""

    method: str  # "gptq", "awq" or "compressed-tensors"
    group_size: int | None  # inputs; None: all of a layer's
    zero_offset: int = 0  # GPTQ's
    act_order: bool = False  # inputs of a group are no neighbours

    @property
    def names(self) -> tuple[str, ...]:
        """What `--quantize` may call it."""
        return (self.method,)

    def numbers(self, module: str) -> str:
        """The tensor of a module's numbers; a module without it is plain."""
        return f"{module}.weight_packed" if self.method == "compressed-tensors" else f"{module}.qweight"


@dataclass(frozen=True)
class StoredEightBits:
    """8 bits a weight; those of a block share a scale. Modules without scales are plain."""

    method: str  # "fp8", "fbgemm_fp8" or "compressed-tensors"
    dtype: str  # safetensors' name: "F8_E4M3" or "I8"
    block_outputs: int | None  # of a block; None: all of a layer's
    block_inputs: int | None  # the same of its inputs
    rounds_rows: bool = True  # to as many bits; False: the weights alone shall be small
    has_row_scales: bool = False  # one for all rows, found when the checkpoint was made

    @property
    def names(self) -> tuple[str, ...]:
        """What `--quantize` may call it."""
        return (self.method, "fp8") if self.dtype == "F8_E4M3" else (self.method,)

    def scale_shape(self, out_features: int, in_features: int) -> tuple[int, int]:
        """(blocks of outputs, blocks of inputs) of a layer."""
        return _blocks(out_features, self.block_outputs), _blocks(in_features, self.block_inputs)


Stored = StoredInt4 | StoredEightBits


def check_asked(stored: Stored | None, asked: str | None) -> None:
    """Raises ConfigError if `--quantize` asks for something else than what the checkpoint is."""
    if asked is None or (stored is not None and asked in stored.names):
        return
    if stored is not None:
        raise ConfigError(f"--quantize {asked}: the checkpoint is quantized already, by {stored.method}; leave it out")
    if asked in ("gptq", "awq", "compressed-tensors"):
        raise ConfigError(
            f"--quantize {asked}: config.json has no quantization_config, so the weights are plain; leave it out, or "
            f"serve a checkpoint that {asked} made"
        )


def _blocks(size: int, block: int | None) -> int:
    return 1 if block is None else -(-size // block)
