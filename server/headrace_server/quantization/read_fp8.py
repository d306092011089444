"""The settings of checkpoints in float8 whose `quant_method` is "fp8" or "fbgemm_fp8"."""

from headrace_kernels.groups import SMALLEST_GROUP
from headrace_server.fields import Fields
from headrace_server.quantization.settings import only
from headrace_server.quantization.stored import StoredEightBits


def read_fp8(fields: Fields) -> StoredEightBits:
    """A scale a layer, or one for each block where `weight_block_size` says so."""
    only(fields, "fmt", fields.text("fmt", "e4m3"), "e4m3")
    scheme = fields.text("activation_scheme", "dynamic")
    only(fields, "activation_scheme", scheme, "dynamic", "static")
    outputs, inputs = block_of(fields, "weight_block_size") if fields.has("weight_block_size") else (None, None)
    return StoredEightBits("fp8", "F8_E4M3", outputs, inputs, has_row_scales=scheme == "static")


def read_fbgemm(fields: Fields) -> StoredEightBits:
    """A scale for each output."""
    return StoredEightBits("fbgemm_fp8", "F8_E4M3", 1, None)


def block_of(fields: Fields, name: str) -> tuple[int, int]:
    """(outputs, inputs) of a block that shares a scale."""
    outputs, inputs = fields.numbers(name, 2)
    if outputs < 1 or inputs < 1 or outputs % 1 or inputs % SMALLEST_GROUP:
        raise fields.error(
            name, f"is [{outputs:g}, {inputs:g}]; supported: any number of outputs, and multiples of 32 inputs"
        )
    return int(outputs), int(inputs)
