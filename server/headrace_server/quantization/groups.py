"""Which groups of inputs a rank's part of a layer has. Pure arithmetic; no torch."""

import math
from dataclasses import dataclass

from headrace_server.errors import ConfigError
from headrace_server.weights.slice import Slice

SMALLEST = 32
"""Inputs: what the 4-bit product steps along."""


@dataclass(frozen=True)
class Groups:
    """Groups of a part of the inputs."""

    size: int  # inputs of one
    stored: tuple[int, ...]  # which group of the checkpoint each is, or is a part of


def groups_of(in_features: Slice, group_size: int | None, name: str) -> Groups:
    """Raises ConfigError if `name` is cut where no group, nor a whole part of one, begins.

    1000 inputs of a layer with groups of 128, from 1024 on: groups of 128, the checkpoint's 8 … 15, the last one
    shorter. From 64 on: groups of 64, the checkpoint's 0, 1, 1, 2, 2, …
    """
    stored_size = group_size or in_features.size
    begin, end = in_features.begin, in_features.end
    if len(in_features) == 0 or begin // stored_size == (end - 1) // stored_size:
        return Groups(max(len(in_features), 1), tuple([begin // stored_size] if len(in_features) else ()))
    size = math.gcd(stored_size, begin, stored_size if end == in_features.size else end)
    if size % SMALLEST:
        raise ConfigError(
            f"{name}: a rank has the inputs {begin} to {end}, which cuts groups of {stored_size} into parts that are "
            f"no multiple of {SMALLEST}; take another --num-shard"
        )
    return Groups(size, tuple(start // stored_size for start in range(begin, end, size)))
