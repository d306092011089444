"""What is wrong with an argument, in words. Imports nothing."""


class ArgumentError(ValueError):
    """A kernel was called with something it can't work on; the message begins with the argument's name."""


def out_of_range(name: str, index: str, value: int, low: int, high: int) -> str:
    """The sentence for an element that is not in [low, high)."""
    return f"{name}[{index}]: expected in [{low}, {high}), got {value}"
