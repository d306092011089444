"""Loads the C++ library."""


def available() -> bool:
    """Whether the library is loaded."""
    return False


def why_unavailable() -> str:
    """The reason, in a sentence."""
    return "it is not built"
