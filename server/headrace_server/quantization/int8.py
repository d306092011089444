"""`--quantize int8`: 8 bits and a float16 scale for each 32 weights, 8.5 bits in all."""

from headrace_kernels.quantized_linear import Kind
from headrace_server.quantization.packed import QuantizedLinears
from headrace_server.weights.source_blocks import SourceBlocks


def method(source: SourceBlocks) -> QuantizedLinears:
    """Q8_0 blocks as they are; all else is quantized to the same."""
    return QuantizedLinears(source, kinds={"Q8_0": Kind.INT8}, otherwise=Kind.INT8, head_otherwise=Kind.INT8)
