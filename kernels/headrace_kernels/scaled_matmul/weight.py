"""8-bit weights with more scales than one for each output."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """[out_features, in_features], of which element (n, k) is about values[n, k] * scales[k // group_size, n]."""

    values: Tensor  # [out_features, in_features] int8 or float8_e4m3fn
    scales: Tensor  # [groups, out_features] float32: a step of the product reads neighbours
    group_size: int  # inputs that share a scale; the last group may be shorter
