"""The definition of `quantize_rows` in plain torch."""

import torch
from torch import Tensor


def quantize_rows(x: Tensor, dtype: torch.dtype, limit: float) -> tuple[Tensor, Tensor]:
    """See `headrace_kernels.quantize_rows`; `limit` is L."""
    wide = x.float()
    largest = wide.abs().amax(dim=1).clamp(min=1e-30) if x.shape[1] else wide.new_full((len(x),), 1e-30)
    scaled = wide * (limit / largest)[:, None]
    # Rounding may carry the largest element past L by one part in 2^23.
    scaled = scaled.round() if dtype is torch.int8 else scaled
    return scaled.clamp(-limit, limit).to(dtype), largest / limit
