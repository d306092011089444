"""A rank that computes with torch, and whose feed-forward layers have no memory for a step of more tokens than said:
`python short_shard.py MOST_TOKENS serve …`. All else is the real shard."""

import sys

import torch
from torch import Tensor

from headrace_kernels import native
from headrace_server import main
from headrace_server.layers import mlp


def short_of_memory(most_tokens: int) -> None:
    computed = mlp.silu_and_mul

    def silu_and_mul(gate_up: Tensor) -> Tensor:
        if len(gate_up) > most_tokens:
            raise torch.OutOfMemoryError(f"{len(gate_up)} tokens do not fit")
        return computed(gate_up)

    mlp.silu_and_mul = silu_and_mul  # type: ignore[assignment]
    native.available = lambda: False


if __name__ == "__main__":
    short_of_memory(int(sys.argv[1]))
    sys.exit(main.main(sys.argv[2:]))
