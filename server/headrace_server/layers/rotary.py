"""Rotary position embedding: by how much queries and keys are turned at each position."""

import torch

from headrace_server.layers.rope_parameters import RopeParameters
from headrace_server.layers.rope_scaling import cos_sin_table


class RotaryEmbedding:
    """One table for all layers, as long as the context that is served."""

    def __init__(self, parameters: RopeParameters, device: torch.device) -> None:
        self._parameters = parameters
        self._device = device
        self.cos_sin = torch.empty(0, parameters.dim, device=device)  # [positions, rotary_dim] float32

    def serve(self, positions: int) -> None:
        """Make the table long enough for sequences of so many tokens. Before the first forward pass."""
        self.cos_sin = torch.from_numpy(cos_sin_table(self._parameters, positions)).to(self._device)
