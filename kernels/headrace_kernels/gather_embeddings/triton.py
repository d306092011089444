"""The Triton kernel of `gather_embeddings`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.launch import launch


def gather_embeddings(weight: Tensor, tokens: Tensor, last_tokens: Tensor, vocab_size: int, vocab_begin: int) -> Tensor:
    """See `headrace_kernels.gather_embeddings`; weight is dense."""
    height, size = weight.shape
    out = torch.empty(len(tokens), size, dtype=weight.dtype, device=weight.device)
    block = min(triton.next_power_of_2(size), 2048)
    launch(
        _gather_embeddings_kernel,
        (len(tokens), triton.cdiv(size, block)),
        weight,
        tokens,
        last_tokens,
        out,
        weight.stride(0),
        len(last_tokens),
        vocab_size,
        vocab_begin,
        height,
        SIZE=size,
        BLOCK=block,
        num_warps=4,
    )
    return out


@triton.jit(do_not_specialize=["max_rows", "vocab_size", "vocab_begin", "height"])
def _gather_embeddings_kernel(
    weight_ptr,
    tokens_ptr,
    last_tokens_ptr,
    out_ptr,
    weight_stride,
    max_rows,
    vocab_size,
    vocab_begin,
    height,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens_ptr + place)
    row = tl.minimum(tl.maximum(-1 - token, 0), max_rows - 1)
    token = tl.where(token < 0, tl.load(last_tokens_ptr + row), token)
    here = tl.minimum(tl.maximum(token, 0), vocab_size - 1) - vocab_begin
    length = tl.where((here >= 0) & (here < height), SIZE, 0)  # none of the row if it is another rank's
    values = tl.load(weight_ptr + here * weight_stride + columns, mask=columns < length, other=0.0)
    tl.store(out_ptr + place * SIZE + columns, values, mask=columns < SIZE)
