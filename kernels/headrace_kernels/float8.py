"""8-bit floats, as KV caches may hold them: four bits of exponent and three of mantissa, or five and two."""

import torch
from torch import Tensor

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
"""What a cache may hold instead of the type of the activations."""


def encode(x: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """x / scale rounded to `dtype`, to even where two are as near. What is too large becomes the largest number.

    The quotient is x times the float32 reciprocal of scale, as kernels compute it.
    """
    most = torch.finfo(dtype).max
    return (x.float() * (1.0 / scale)).clamp(-most, most).to(dtype)


def decode(codes: Tensor, scale: float) -> Tensor:
    """codes * scale, in float32."""
    return codes.float() * scale
