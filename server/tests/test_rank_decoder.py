"""What rank 0 makes of what all ranks found in their tokens of the vocabulary."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from headrace_kernels.decoder import Decoder, StepInputs, StepOutputs
from headrace_server.compute.rank_decoder import RankDecoder
from headrace_server.distributed.arrays import ArrayCollective

WIDTHS = (3, 3, 2)  # tokens of the vocabulary, of three ranks
FIRST = (0, 3, 6)


@dataclass(frozen=True)
class Found:
    """A decoder that has computed."""

    outputs: StepOutputs

    def forward_among_ranks(self, *_: Any) -> StepOutputs:
        return self.outputs

    def logits(self, _: Any) -> np.ndarray:
        return self.outputs.logits


class Messages:
    """A gather: all ranks' calls, the first rank's last."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []

    def add_up(self, _: np.ndarray) -> None:
        pass

    def gather(self, x: np.ndarray) -> list[np.ndarray] | None:
        self._parts.insert(0, x)
        return self._parts if len(self._parts) == len(WIDTHS) else None


def found(rank: int, logits: list[list[float]], wanted: list[int]) -> Found:
    values = np.array(logits, np.float32)
    best = values.argmax(axis=1)
    largest = values[np.arange(len(best)), best]
    return Found(StepOutputs(best + FIRST[rank], largest, values[wanted]))


def together(logits: list[list[float]], wanted: list[int]) -> tuple[StepOutputs, np.ndarray]:
    """Rank 0's outputs of rows of logits, and its logits of the wanted ones."""
    messages, more = Messages(), Messages()
    nothing = np.empty(0)
    inputs = StepInputs(nothing, nothing, nothing, nothing, np.arange(len(logits)), nothing.astype(np.bool_))
    for rank in (2, 1, 0):
        begin = FIRST[rank]
        mine = cast(Decoder, found(rank, [row[begin : begin + WIDTHS[rank]] for row in logits], wanted))
        whole = RankDecoder(mine, cast(ArrayCollective, messages), WIDTHS).forward(inputs)
        told = RankDecoder(mine, cast(ArrayCollective, more), WIDTHS).logits(np.array(wanted))
    return whole, told


def test_the_largest_logit_wins_the_lowest_id_among_equals_and_nan_above_all() -> None:
    nan = float("nan")
    rows = [
        [0, 1, 2, 3, 9, 3, 4, 5],
        [0, 1, 7, 7, 0, 0, 7, 0],
        [9, 9, 9, 9, 9, 9, nan, nan],
        [-5, -6, -7, -4, -5, -6, -3, -9],
    ]
    out, _ = together(rows, [])
    assert out.best_ids.tolist() == [4, 2, 6, 6]
    assert out.best_logits.tolist()[:2] == [9, 7]
    assert np.isnan(out.best_logits[2])
    assert out.logits.shape == (0, 8)


def test_logits_stand_in_the_order_of_the_vocabulary() -> None:
    rows = np.random.default_rng(3).standard_normal((3, 8)).astype(np.float32)
    out, told = together(rows.tolist(), [0, 2])
    assert np.array_equal(out.logits, rows[[0, 2]])
    assert np.array_equal(told, rows[[0, 2]])
