"""Where a token's key and value lie in the paged cache, for Triton kernels that write them."""

import triton
import triton.language as tl

from headrace_kernels.gpu.batch_rows import row_of_token
from headrace_kernels.gpu.float8 import narrow


@triton.jit
def locate(token, tables_ptr, starts_ptr, contexts_ptr, table_stride, num_rows, BLOCK_SIZE: tl.constexpr):
    """(position, slot) of a token of the batch, slot in int64: caches pass 2^31 elements. Below 0: it has none, for
    no row has the token, or its row has no context."""
    row = row_of_token(starts_ptr, num_rows, token)
    there = row < num_rows
    end = tl.load(starts_ptr + row + 1, mask=there, other=0)
    context = tl.load(contexts_ptr + row, mask=there, other=0)
    position = tl.where(there, context - (end - token), -1)
    entry_ptr = tables_ptr + row.to(tl.int64) * table_stride + position // BLOCK_SIZE
    block = tl.load(entry_ptr, mask=position >= 0, other=0)
    return position, block.to(tl.int64) * BLOCK_SIZE + position % BLOCK_SIZE


@triton.jit
def place_of(slot, kv_head, NUM_KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, PADDED_DIM: tl.constexpr):
    """The first element of a slot's key or value in a cache of the plain order."""
    block, offset = slot // BLOCK_SIZE, slot % BLOCK_SIZE
    return ((block * NUM_KV_HEADS + kv_head) * BLOCK_SIZE + offset) * PADDED_DIM


@triton.jit
def store_head(cache_ptr, place, elements, mask, numbers, inverse_scale, FORMAT: tl.constexpr):
    """Write elements of a key or value."""
    tl.store(
        cache_ptr + place + elements, narrow(numbers, inverse_scale, FORMAT, cache_ptr.dtype.element_ty), mask=mask
    )
