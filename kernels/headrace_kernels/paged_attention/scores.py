"""How scores are made of queries and keys: what the Triton kernels share beyond tensors of the batch."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Scores:
    """As `headrace_kernels.paged_attention` explains them."""

    scale: float
    sliding_window: int | None
    softcap: float | None
    sinks: Tensor | None  # [num_heads] float32
    k_scale: float
    v_scale: float
