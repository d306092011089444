"""What property tests of Triton kernels draw: odd sizes around the edges of tiles, seeded tensors, few examples."""

import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from torch import Tensor

FEW = settings(max_examples=12, phases=(Phase.explicit, Phase.generate))
"""The interpreter is slow, so a failure is not made smaller; and it must be seen again on the next run."""

TOLERANCE = {torch.float32: {"atol": 1e-5, "rtol": 1e-5}, torch.float16: {"atol": 2e-3, "rtol": 2e-3}}
"""float32: sums in another order. float16: a rounding, 2^-11, of nearly equal numbers."""

tokens = st.integers(0, 4)
sizes = st.one_of(st.integers(1, 70), st.sampled_from([127, 128, 129, 513, 1025]))
floats = st.sampled_from([torch.float32, torch.float16])
seeds = st.integers(0, 1000)


def tensor(*shape: int, seed: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    """Normal numbers."""
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)
