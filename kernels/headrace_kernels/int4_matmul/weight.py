"""The one form in which 4-bit weights are multiplied."""

from dataclasses import dataclass

from torch import Tensor

from headrace_kernels.int4_shifts import WORD


@dataclass(frozen=True, slots=True)
class Int4Weight:
    """[in_features, out_features], 4 bits each. Eight inputs of one output are in a word, the first in its lowest bits;
    words of neighbouring outputs are neighbours, so neighbouring threads read what lies side by side."""

    packed: Tensor  # [in_features / 8, out_features] int32
    scales: Tensor  # [groups, out_features], floating-point
    zeros: Tensor  # [groups, out_features] uint8, 0 … 16
    group_size: int  # inputs that share scale and zero; the last group may be shorter; without meaning beside `groups`
    order: Tensor | None = None  # [in_features] integer: which input the k-th is; None: the k-th
    groups: Tensor | None = None  # [in_features] int32: the group of the k-th, where groups are of no one size

    @property
    def in_features(self) -> int:
        return WORD * self.packed.shape[0]
