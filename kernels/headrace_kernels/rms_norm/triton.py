"""The Triton kernel of all root-mean-square normalisations: one program a row, which is read once."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.launch import launch
from headrace_kernels.gpu.rows import row_shape
from headrace_kernels.quantize_rows.triton import as_stored, empty, magnitude, narrow, scales_of, switches


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """See `headrace_kernels.rms_norm`; the arguments are checked and dense."""
    out = torch.empty(x.shape, dtype=weight.dtype, device=x.device)
    _normalise(x, None, weight, eps, None, out, None)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """See `headrace_kernels.add_rms_norm`; the arguments are checked and dense."""
    out = torch.empty(x.shape, dtype=weight.dtype, device=x.device)
    total = torch.empty(x.shape, dtype=residual.dtype, device=x.device)
    _normalise(x, residual, weight, eps, total, out, None)
    return out, total


def add_rms_norm_quantized(
    x: Tensor, residual: Tensor, weight: Tensor, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """(values, scales, sum) of `headrace_kernels.add_rms_norm_quantized`; the arguments are checked and dense."""
    values, scales = empty(x.shape, dtype, x.device)
    total = torch.empty(x.shape, dtype=residual.dtype, device=x.device)
    _normalise(x, residual, weight, eps, total, values, scales)
    return values, scales, total


def _normalise(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    eps: float,
    total: Tensor | None,
    out: Tensor,
    scales: Tensor | None,
) -> None:
    heads = x.shape[1] if x.dim() == 3 else 1
    size = x.shape[-1]
    block, warps = row_shape(size)
    quantizes: dict[str, Any] = {"QUANTIZE": False, "IS_FLOAT8": False, "CONVERTS_FLOAT8": False}
    if scales is not None:
        quantizes = {"QUANTIZE": True, **switches(out.dtype)}
        out = as_stored(out)
    launch(
        _rms_norm_kernel,
        (x.shape[0] * heads,),
        x,
        residual,
        weight.contiguous(),
        total,
        out,
        scales,
        x.stride(0),
        0 if residual is None else residual.stride(0),
        eps,
        HEADS=heads,
        SIZE=size,
        BLOCK=block,
        HAS_RESIDUAL=residual is not None,
        num_warps=warps,
        **quantizes,
    )


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    total_ptr,
    out_ptr,
    scales_ptr,
    x_stride,
    residual_stride,
    eps,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    QUANTIZE: tl.constexpr,
    IS_FLOAT8: tl.constexpr,
    CONVERTS_FLOAT8: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    token, head = row // HEADS, row % HEADS
    columns = tl.arange(0, BLOCK)
    inside = columns < SIZE
    x = tl.load(x_ptr + token * x_stride + head * SIZE + columns, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        x += tl.load(residual_ptr + token * residual_stride + columns, mask=inside, other=0.0).to(tl.float32)
        # Rounded, as whoever reads the stream finds it.
        total = x.to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + row * SIZE + columns, total, mask=inside)
        x = total.to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / SIZE + eps)
    # Rounded to the weight's type before it is quantized, so that fused and apart give the same bits.
    normed = (x * scale * weight.to(tl.float32)).to(weight.dtype)
    if QUANTIZE:
        wide = normed.to(tl.float32)
        row_scale, inverse = scales_of(magnitude(wide), IS_FLOAT8)
        tl.store(scales_ptr + row, row_scale)
        tl.store(out_ptr + row * SIZE + columns, narrow(wide * inverse, IS_FLOAT8, CONVERTS_FLOAT8), mask=inside)
    else:
        tl.store(out_ptr + row * SIZE + columns, normed, mask=inside)
