"""The definition of `gather_embeddings` in plain torch."""

from torch import Tensor


def gather_embeddings(weight: Tensor, tokens: Tensor, last_tokens: Tensor, vocab_size: int, vocab_begin: int) -> Tensor:
    """See `headrace_kernels.gather_embeddings`."""
    sampled = last_tokens[(-1 - tokens).clamp(0, len(last_tokens) - 1)]
    ids = tokens.where(tokens >= 0, sampled).clamp(0, vocab_size - 1) - vocab_begin
    found = (ids >= 0) & (ids < len(weight))
    return weight.index_select(0, ids.clamp(0, len(weight) - 1)).masked_fill(~found[:, None], 0)
