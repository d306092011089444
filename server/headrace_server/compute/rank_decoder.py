"""One rank's C++ decoder among the others': sums between its parts, and rank 0 learns what all found of their tokens of
the vocabulary."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from headrace_kernels.decoder import Decoder, StepInputs, StepOutputs, Times
from headrace_server.distributed.arrays import ArrayCollective
from headrace_server.distributed.collective import Exchange, Kind
from headrace_server.step import Ints


class RankDecoder:
    """A `Decoder` whose results are the whole model's on rank 0. On the others they are of their own tokens, and
    nobody's."""

    def __init__(self, decoder: Decoder, ranks: ArrayCollective, widths: Sequence[int]) -> None:
        """`widths`: tokens of the vocabulary of each rank."""
        self._decoder = decoder
        self._ranks = ranks
        self._widths = widths

    def reserve(self, tokens: int, sampled: int) -> None:
        self._decoder.reserve(tokens, sampled)

    def exchanges(self, tokens: int, sampled: int, logits: int, asked: Sequence[int]) -> list[Exchange]:
        """What ranks exchange in `forward`, of whose sampled tokens so many want logits, and then in a call of `logits`
        for each of `asked` tokens, time after time."""
        widest = max(self._widths)
        found = [(2 * sampled + logits * widest,)] if sampled else []
        gathered = [*found, *((count, widest) for count in asked)]
        summed = Exchange(Kind.SUM, (tokens, self._decoder.hidden_size), torch.float32)
        return [summed] * self._decoder.num_sums + [Exchange(Kind.GATHER, shape, torch.float32) for shape in gathered]

    def forward(self, inputs: StepInputs, times: Times | None = None) -> StepOutputs:
        mine = self._decoder.forward_among_ranks(inputs, self._ranks.add_up, times)
        if len(inputs.sampled) == 0:
            return mine
        sampled = len(mine.best_ids)
        # One message: the largest logits, the bits of their ids, and logits.
        ids = mine.best_ids.astype(np.int32).view(np.float32)
        parts = self._ranks.gather(np.concatenate((mine.best_logits, ids, self._padded(mine.logits).ravel())))
        if parts is None:
            return mine
        best = np.stack([part[: 2 * sampled].reshape(2, sampled) for part in parts])
        # The largest, or NaN; of equals the first, since ranks have their tokens in order.
        winner = best[:, 0].argmax(axis=0)
        best_logits, best_ids = best[winner, :, np.arange(sampled)].T
        return StepOutputs(
            np.ascontiguousarray(best_ids).view(np.int32).astype(np.int64),
            np.ascontiguousarray(best_logits),
            self._joined([part[2 * sampled :] for part in parts]),
        )

    def logits(self, tokens: Ints) -> NDArray[np.float32]:
        mine = self._decoder.logits(tokens)
        parts = self._ranks.gather(self._padded(mine))
        return mine if parts is None else self._joined(parts)

    def _padded(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """As wide as the widest rank's."""
        padded = np.zeros((len(logits), max(self._widths)), np.float32)
        padded[:, : logits.shape[1]] = logits
        return padded

    def _joined(self, parts: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
        """Padded logits of all ranks, side by side without the padding."""
        widest = max(self._widths)
        rows = [part.reshape(-1, widest)[:, :width] for part, width in zip(parts, self._widths, strict=True)]
        return np.concatenate(rows, axis=1)
