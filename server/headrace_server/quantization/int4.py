"""`--quantize int4`: 4 bits, a scale and a minimum for each 32 weights, 4.5 to 5 bits in all."""

from headrace_kernels.quantized_linear import Kind
from headrace_server.quantization.packed import BLOCKS, WIDER, QuantizedLinears
from headrace_server.weights.source_blocks import SourceBlocks


def method(source: SourceBlocks) -> QuantizedLinears:
    """4-bit blocks as they are, wider ones in 8 bits, and unquantized weights in 4.

    The head is the exception: unless the GGUF has it in 4 bits it gets 8, since every error in it is one in a logit.
    """
    kinds = {**dict.fromkeys(WIDER, Kind.INT8), **BLOCKS}
    return QuantizedLinears(source, kinds, otherwise=Kind.INT4, head_otherwise=Kind.INT8)
