"""Groups of inputs of a linear layer that share a scale. Pure arithmetic."""

SMALLEST_GROUP = 32
"""Unless all inputs are one group, a group is a multiple of this: the products' shortest step along the inputs."""


def step_within(group_size: int, most: int) -> int:
    """Inputs of a product's step that stays inside one group: a power of two that divides group_size, at most `most`.

    Groups of 96: steps of 32.
    """
    step = SMALLEST_GROUP
    while step < most and group_size % (2 * step) == 0:
        step *= 2
    return step
