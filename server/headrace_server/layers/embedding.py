"""Token embedding and language-model head, each rank with its slice of the vocabulary."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from headrace_kernels.gather_embeddings import gather_embeddings
from headrace_server.distributed.collective import Collective
from headrace_server.quantization.method import LinearLayer


class Embedding:
    """tokens [tokens], last_tokens [rows], as `gather_embeddings` takes them → [tokens, hidden_size]."""

    def __init__(self, weight: Tensor, vocabulary: range, vocab_size: int, collective: Collective) -> None:
        """weight [len(vocabulary), hidden_size]: the rows of the token ids `vocabulary`."""
        self.weight = weight
        self._first = vocabulary.start
        self._vocab_size = vocab_size
        self._collective = collective

    def __call__(self, tokens: Tensor, last_tokens: Tensor) -> Tensor:
        mine = gather_embeddings(self.weight, tokens, last_tokens, self._vocab_size, self._first)
        # Exact: of each token all ranks but one add zero.
        return mine if self._collective.world_size == 1 else self._collective.all_reduce(mine)


class LanguageModelHead:
    """hidden [rows, hidden_size] → logits [rows, vocab_size] float32 on rank 0, [rows, 0] elsewhere.

    The weight may be the embedding's.
    """

    def __init__(self, part: LinearLayer, widths: Sequence[int], collective: Collective) -> None:
        """part: → [rows, widths[rank]]; widths: tokens of each rank, the first one's the most."""
        self._part = part
        self._widths = widths
        self._collective = collective

    def __call__(self, hidden: Tensor) -> Tensor:
        mine = self._part(hidden)
        if self._collective.world_size == 1:
            return mine.float()
        parts = self._collective.gather(pad(mine, (0, self._widths[0] - mine.shape[1])))
        if parts is None:
            return mine[:, :0].float()
        return torch.cat([part[:, :width] for part, width in zip(parts, self._widths, strict=True)], dim=1).float()
