"""Token embedding. Over ranks it would be split by vocabulary, here.

`index_select` rather than `embedding`: no padding index, no gradient bookkeeping.
"""

from torch import Tensor


class Embedding:
    """token_ids [tokens] int64 → [tokens, hidden_size]."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight  # [vocab_size, hidden_size]

    def __call__(self, token_ids: Tensor) -> Tensor:
        return self.weight.index_select(0, token_ids)
