"""Rotary position embedding: queries and keys are turned by their positions."""

import torch
from torch import Tensor

from headrace_kernels.ops import rotary_embedding
from headrace_server.layers.rope_parameters import RopeParameters
from headrace_server.layers.rope_scaling import cos_sin_table


class RotaryEmbedding:
    """One table for all layers, as long as the context that is served."""

    def __init__(self, parameters: RopeParameters, device: torch.device) -> None:
        self._parameters = parameters
        self._device = device
        self._cos_sin = torch.empty(0, parameters.dim, device=device)

    def serve(self, positions: int) -> None:
        """Make the table long enough for sequences of so many tokens. Before the first forward pass."""
        self._cos_sin = torch.from_numpy(cos_sin_table(self._parameters, positions)).to(self._device)

    def __call__(self, query: Tensor, key: Tensor, positions: Tensor) -> None:
        """Turn query [tokens, heads, head_dim] and key [tokens, kv_heads, head_dim] in place."""
        rotary_embedding(query, key, self._cos_sin, positions)
