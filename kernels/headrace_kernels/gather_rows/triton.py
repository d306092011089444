"""The Triton kernel of `gather_rows`."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.launch import launch


def gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """See `headrace_kernels.gather_rows`; x is dense."""
    size = x.shape[1]
    out = torch.empty(len(rows), size, dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(size), 2048)
    grid = (len(rows), triton.cdiv(size, block))
    launch(_gather_rows_kernel, grid, x, rows, out, x.stride(0), len(x), SIZE=size, BLOCK=block, num_warps=4)
    return out


@triton.jit(do_not_specialize=["num_rows"])
def _gather_rows_kernel(x_ptr, rows_ptr, out_ptr, x_stride, num_rows, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    target = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = tl.load(rows_ptr + target)
    source = tl.minimum(tl.maximum(source, 0), num_rows - 1)
    values = tl.load(x_ptr + source * x_stride + columns, mask=columns < SIZE)
    tl.store(out_ptr + target * SIZE + columns, values, mask=columns < SIZE)
