"""Filters: each sets the logits of tokens that may not be sampled to −∞, in place. docs/sampling.md has the order.

Every filter keeps at least one token. One that cuts between equal logits keeps them all: which of two equal tokens
stays must not depend on a sorting algorithm.
"""

import torch
from torch import Tensor

NEVER = float("-inf")


def keep_top_k(scores: Tensor, k: Tensor) -> None:
    """Keep the k largest. scores [rows, vocab_size]; k [rows, 1] int64, in [1, vocab_size]."""
    largest = scores.topk(int(k.max()), dim=-1).values
    scores.masked_fill_(scores < largest.gather(1, k - 1), NEVER)


def keep_typical(scores: Tensor, mass: Tensor) -> None:
    """Keep the tokens whose information is nearest to the distribution's entropy, until they hold `mass`.

    scores [rows, vocab_size]; mass [rows, 1], in (0, 1)
    """
    log_probabilities = scores.log_softmax(dim=-1)
    probabilities = log_probabilities.exp()
    information = -torch.where(probabilities > 0, probabilities * log_probabilities, 0.0)
    # A running sum goes along a row in one order; `sum` would split a lone row over threads and round differently.
    entropy = information.cumsum(dim=-1, dtype=torch.float64)[:, -1:].float()
    distance = (-log_probabilities - entropy).abs()
    nearest, order = distance.sort(dim=-1)
    last = _tokens_needed(probabilities.gather(1, order), mass) - 1
    scores.masked_fill_(distance > nearest.gather(1, last), NEVER)


def keep_top_p(scores: Tensor, mass: Tensor) -> None:
    """Keep the likeliest tokens until they hold `mass`. scores [rows, vocab_size]; mass [rows, 1], in (0, 1)."""
    probabilities = scores.softmax(dim=-1)
    falling = _sorted_falling(probabilities)
    last = _tokens_needed(falling, mass) - 1
    scores.masked_fill_(probabilities < falling.gather(1, last), NEVER)


def keep_min_p(scores: Tensor, share: Tensor) -> None:
    """Drop tokens less likely than `share` of the likeliest. scores [rows, vocab_size]; share [rows, 1], in (0, 1]."""
    scores.masked_fill_(scores < scores.amax(dim=-1, keepdim=True) + share.log(), NEVER)


def _tokens_needed(probabilities: Tensor, mass: Tensor) -> Tensor:
    """[rows, 1]: how many of each row's tokens, in the order given, hold at least `mass`; at most all."""
    short = (probabilities.cumsum(dim=-1) < mass).sum(dim=-1, keepdim=True)
    return short.add_(1).clamp_(max=probabilities.shape[-1])


def _sorted_falling(values: Tensor) -> Tensor:
    """Each row sorted, largest first. On a CPU numpy's vectorised sort is about twenty times faster than torch's."""
    if values.device.type != "cpu":
        return values.sort(dim=-1, descending=True).values
    rising = values.numpy().copy()
    rising.sort(axis=-1)
    return torch.from_numpy(rising).flip(-1)
