"""Token embedding and language-model head, each rank with its slice of the vocabulary.

`index_select` rather than `embedding`: no padding index, no gradient bookkeeping.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from headrace_server.distributed.collective import Collective


class Embedding:
    """token_ids [tokens] int64 → [tokens, hidden_size]."""

    def __init__(self, weight: Tensor, vocabulary: range, collective: Collective) -> None:
        """weight [len(vocabulary), hidden_size]: the rows of the token ids `vocabulary`."""
        self.weight = weight
        self._first = vocabulary.start
        self._collective = collective

    def __call__(self, token_ids: Tensor) -> Tensor:
        if self._collective.world_size == 1:
            return self.weight.index_select(0, token_ids)
        rows = token_ids - self._first
        elsewhere = (rows < 0) | (rows >= self.weight.shape[0])
        mine = self.weight.index_select(0, rows.masked_fill(elsewhere, 0))
        # Exact: of each token all ranks but one add zero.
        return self._collective.all_reduce(mine.masked_fill_(elsewhere[:, None], 0))


class LanguageModelHead:
    """hidden [rows, hidden_size] → logits [rows, vocab_size] float32 on rank 0, [rows, 0] elsewhere.

    The weight may be the embedding's.
    """

    def __init__(self, weight: Tensor, widths: Sequence[int], collective: Collective) -> None:
        """weight [widths[rank], hidden_size]; widths: tokens of each rank, the first one's the most."""
        self.weight = weight
        self._widths = widths
        self._collective = collective

    def __call__(self, hidden: Tensor) -> Tensor:
        mine = linear(hidden, self.weight)
        if self._collective.world_size == 1:
            return mine.float()
        parts = self._collective.gather(pad(mine, (0, self._widths[0] - mine.shape[1])))
        if parts is None:
            return mine[:, :0].float()
        return torch.cat([part[:, :width] for part, width in zip(parts, self._widths, strict=True)], dim=1).float()
