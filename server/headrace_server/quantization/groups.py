"""Which groups of inputs a rank's part of a layer has. Pure arithmetic."""

import math
from dataclasses import dataclass

from headrace_kernels.groups import SMALLEST_GROUP
from headrace_server.errors import ConfigError
from headrace_server.weights.slice import Slice


@dataclass(frozen=True)
class Groups:
    """Groups of a part of the inputs."""

    size: int  # inputs of one
    stored: tuple[int, ...]  # which group of the checkpoint each is, or is a part of


def groups_of(in_features: Slice, group_size: int | None, name: str) -> Groups:
    """Raises ConfigError if `name` is cut where no group, nor a whole part of one, begins.

    Inputs 128 to 384 of groups of 128: groups of 128, the checkpoint's 1 and 2. Inputs 64 to 320: groups of 64, the
    checkpoint's 0, 1, 1 and 2.
    """
    stored_size = group_size or in_features.size
    begin, end = in_features.begin, in_features.end
    if begin // stored_size == (end - 1) // stored_size:
        return Groups(len(in_features), (begin // stored_size,))
    size = math.gcd(stored_size, begin, stored_size if end == in_features.size else end)
    if size % SMALLEST_GROUP:
        raise ConfigError(
            f"{name}: a rank has the inputs {begin} to {end}, which cuts groups of {stored_size} into parts that are "
            f"no multiple of {SMALLEST_GROUP}; take another --num-shard"
        )
    return Groups(size, tuple(start // stored_size for start in range(begin, end, size)))
