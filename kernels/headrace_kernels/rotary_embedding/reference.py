"""The definition of `rotary_embedding` in plain torch."""

from torch import Tensor


def rotary_embedding(query: Tensor, key: Tensor, cos_sin: Tensor, positions: Tensor) -> None:
    """See `headrace_kernels.rotary_embedding`."""
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)  # each [num_tokens, 1, rotary_dim / 2]
    for heads in (query, key):
        first, second = heads[..., : cos_sin.shape[1]].chunk(2, dim=-1)
        a, b = first.float(), second.float()
        rotated = a * cos - b * sin, b * cos + a * sin  # both before either half is overwritten
        first.copy_(rotated[0])
        second.copy_(rotated[1])
