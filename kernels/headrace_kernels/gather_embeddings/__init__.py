"""The embeddings of a step's tokens, of which those sampled last are known to the device only."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, ArgumentError, dense, expect
from headrace_kernels.gather_embeddings import reference


def gather_embeddings(
    weight: Tensor,
    tokens: Tensor,
    last_tokens: Tensor,
    vocab_size: int,
    vocab_begin: int = 0,
    *,
    backend: Backend | None = None,
) -> Tensor:
    """Look up a flat batch in a rank's slice of the embedding.

    weight       [height, size]: rows vocab_begin … vocab_begin + height - 1 of the whole; any stride between rows
    tokens       [num_tokens] int64: a token's id, or -1 - row for what that row of the batch sampled last
    last_tokens  [max_rows] int64: the ids sampled last; at least one
    vocab_size   rows of the whole embedding
    returns      [num_tokens, size] in weight's dtype, contiguous

        id = tokens[t] if tokens[t] >= 0 else last_tokens[-1 - tokens[t]]
        out[t] = weight[id - vocab_begin], or zeros if id is not in the slice

    so the sum over ranks is the embedding. Nobody but the device may know an id, so nothing is refused: ids outside the
    vocabulary, and rows outside the batch, are taken to the nearest inside.

    tokens [5, -1, -4] with last_tokens [9, 0, 0, 2] are the ids [5, 9, 2].
    """
    expect(weight, "weight", (None, None), FLOATS)
    expect(tokens, "tokens", (None,), torch.int64, weight)
    expect(last_tokens, "last_tokens", (None,), torch.int64, weight)
    if not len(last_tokens):
        raise ArgumentError("last_tokens: expected at least one")
    if choose(backend, weight, cpu=False) == "triton":
        from headrace_kernels.gather_embeddings import triton

        return triton.gather_embeddings(
            dense(weight), tokens.contiguous(), last_tokens.contiguous(), vocab_size, vocab_begin
        )
    return reference.gather_embeddings(weight, tokens, last_tokens, vocab_size, vocab_begin)
