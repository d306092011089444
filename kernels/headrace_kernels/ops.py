"""The operations on torch tensors. Each takes `backend=None`, which means the fastest one that can do it."""

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import ArgumentError
from headrace_kernels.copy_blocks import cache_pointers, copy_blocks
from headrace_kernels.gather_embeddings import gather_embeddings
from headrace_kernels.gather_rows import gather_rows
from headrace_kernels.gumbel_noise import gumbel_noise
from headrace_kernels.int4_matmul import Int4Weight, int4_matmul
from headrace_kernels.invariant_linear import invariant_linear
from headrace_kernels.kv_cache import DEFAULT_BLOCK_SIZE, default_block_size, kv_cache_shape
from headrace_kernels.paged_attention import DecodeWorkspace, paged_attention
from headrace_kernels.quantize_rows import QuantizedRows, quantize_rows
from headrace_kernels.rms_norm import add_rms_norm, add_rms_norm_quantized, rms_norm
from headrace_kernels.rotary_embedding import rotary_embedding
from headrace_kernels.rotate_and_store_kv import HeadNorms, rotate_and_store_kv
from headrace_kernels.scaled_matmul import GroupedWeight, scaled_matmul
from headrace_kernels.silu_and_mul import silu_and_mul, silu_and_mul_quantized
from headrace_kernels.store_kv import store_kv
from headrace_kernels.token_logprobs.of_tensors import token_logprobs

__all__ = [
    "DEFAULT_BLOCK_SIZE",
    "ArgumentError",
    "Backend",
    "DecodeWorkspace",
    "GroupedWeight",
    "HeadNorms",
    "Int4Weight",
    "QuantizedRows",
    "add_rms_norm",
    "add_rms_norm_quantized",
    "cache_pointers",
    "choose",
    "copy_blocks",
    "default_block_size",
    "gather_embeddings",
    "gather_rows",
    "gumbel_noise",
    "int4_matmul",
    "invariant_linear",
    "kv_cache_shape",
    "paged_attention",
    "quantize_rows",
    "rms_norm",
    "rotary_embedding",
    "rotate_and_store_kv",
    "scaled_matmul",
    "silu_and_mul",
    "silu_and_mul_quantized",
    "store_kv",
    "token_logprobs",
]
