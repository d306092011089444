"""Log-probabilities on a GPU: several programs a row for the sum, one to put it together. Nothing of a row's size is
written, so it costs a read of the logits."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from headrace_kernels.gpu.launch import launch

TILE = 2048  # tokens of a program


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """See `headrace_kernels.token_logprobs.of_tensors`; the arguments are checked."""
    num_rows = len(logits)
    out = torch.empty(num_rows, device=logits.device)
    totals = log_totals(logits, None, num_rows)
    launch(_gather_kernel, (num_rows,), logits, logits.stride(0), tokens, totals, out, num_warps=1)
    return out


def log_totals(logits: Tensor, places: Tensor | None, num_rows: int) -> Tensor:
    """[num_rows, 2] float32: of each row, or of the logits' rows `places` [num_rows] int32, the largest logit and
    log(sum(exp(logits - largest))). The largest is +∞ if a logit is NaN."""
    vocab_size = logits.shape[1]
    num_tiles = triton.cdiv(vocab_size, TILE)
    tiles = torch.empty(num_rows, num_tiles, 2, device=logits.device)
    out = torch.empty(num_rows, 2, device=logits.device)
    grid = (num_rows, num_tiles)
    launch(_tile_kernel, grid, logits, logits.stride(0), places, tiles, vocab_size, TILE=TILE, num_warps=4)
    launch(_merge_kernel, (num_rows,), tiles, out, num_tiles, TILES=triton.next_power_of_2(num_tiles), num_warps=1)
    return out


@triton.jit
def _tile_kernel(logits_ptr, logits_stride, places_ptr, tiles_ptr, vocab_size, TILE: tl.constexpr):
    """(largest, sum of e^(logit - largest)) of a tile."""
    at = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    place = at
    if places_ptr is not None:
        place = tl.load(places_ptr + at).to(tl.int64)
    tokens = tile * TILE + tl.arange(0, TILE)
    never = float("-inf")
    x = tl.load(logits_ptr + place * logits_stride + tokens, mask=tokens < vocab_size, other=never).to(tl.float32)
    largest = tl.max(x)
    total = tl.sum(tl.exp(x - largest))  # NaN if all are −∞: such a tile adds nothing
    is_nan = tl.max((x != x).to(tl.int32)) != 0
    out = tiles_ptr + (at * tl.num_programs(1) + tile) * 2
    tl.store(out, tl.where(is_nan, float("inf"), largest))
    tl.store(out + 1, total)


@triton.jit
def _merge_kernel(tiles_ptr, out_ptr, num_tiles, TILES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    tiles = tl.arange(0, TILES)
    inside = tiles < num_tiles
    largest_of = tl.load(tiles_ptr + (row * num_tiles + tiles) * 2, mask=inside, other=float("-inf"))
    total_of = tl.load(tiles_ptr + (row * num_tiles + tiles) * 2 + 1, mask=inside, other=0.0)
    largest = tl.max(largest_of)
    total = tl.sum(tl.where(total_of > 0, total_of * tl.exp(largest_of - largest), 0.0))
    tl.store(out_ptr + row * 2, largest)
    tl.store(out_ptr + row * 2 + 1, tl.log(total))


@triton.jit
def logprob(logit, totals_ptr, at):
    """Of one logit of the at-th row; NaN if the row is not finite."""
    largest = tl.load(totals_ptr + at * 2)
    value = (logit - largest) - tl.load(totals_ptr + at * 2 + 1)
    return tl.where(largest - largest == 0.0, value, float("nan"))


@triton.jit
def _gather_kernel(logits_ptr, logits_stride, tokens_ptr, totals_ptr, out_ptr):
    row = tl.program_id(0).to(tl.int64)
    logit = tl.load(logits_ptr + row * logits_stride + tl.load(tokens_ptr + row)).to(tl.float32)
    tl.store(out_ptr + row, logprob(logit, totals_ptr, row))
