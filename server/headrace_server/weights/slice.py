"""A part of one axis of a stored tensor: what a rank takes of it. No torch."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Slice:
    """[begin, end) of an axis that has `size` entries in the checkpoint."""

    size: int
    begin: int
    end: int

    def __post_init__(self) -> None:
        assert 0 <= self.begin <= self.end <= self.size, self

    @classmethod
    def whole(cls, size: int) -> Self:
        """The axis as it is."""
        return cls(size, 0, size)

    @classmethod
    def of(cls, size: int, part: range, unit: int = 1) -> Self:
        """Entries of `part`, each of which is `unit` long."""
        return cls(size, part.start * unit, part.stop * unit)

    @property
    def is_whole(self) -> bool:
        return len(self) == self.size

    def __len__(self) -> int:
        return self.end - self.begin


Axis = int | Slice
"""An axis that is taken whole, by its size, or a part of one."""


def as_slice(axis: Axis) -> Slice:
    return axis if isinstance(axis, Slice) else Slice.whole(axis)
