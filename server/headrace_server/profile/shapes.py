"""What is measured: `48x1000` is 48 rows that decode with a context of 1,000 tokens, `0x512` a prompt of 512 tokens."""

import re
from dataclasses import dataclass

import numpy as np

from headrace_server.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Shape:
    """Rows that decode, or one prompt."""

    rows: int  # that decode; 0: a prompt
    context: int  # tokens that a row's first measured step sees, its own included, or those of the prompt

    def __str__(self) -> str:
        return f"{self.rows}x{self.context}"

    @property
    def tokens(self) -> int:
        """That one step computes."""
        return self.rows or self.context

    def describe(self) -> str:
        if self.rows == 0:
            return f"a prompt of {self.context:,} tokens"
        return f"{self.rows:,} {'row that decodes' if self.rows == 1 else 'rows that decode'}, context {self.context:,}"


@dataclass(frozen=True, slots=True)
class Extent:
    """What the tokens of a step see, for floors: queries [first, context) of each of `rows` equal rows."""

    rows: int
    first: int  # position of a row's first query
    context: int  # tokens that its last query sees

    @property
    def tokens(self) -> int:
        return self.rows * (self.context - self.first)

    def keys(self, window: int | None) -> int:
        """Keys that some query sees, of all rows."""
        unseen = 0 if window is None else max(self.first - window + 1, 0)
        return self.rows * (self.context - unseen)

    def pairs(self, window: int | None) -> int:
        """Queries and keys that meet, of all rows."""
        seen = np.arange(self.first + 1, self.context + 1)
        return self.rows * int((seen if window is None else np.minimum(seen, window)).sum())


def parse_shapes(text: str) -> list[Shape]:
    """Raises ConfigError for what is no list of shapes."""
    return [_parse(part) for part in text.split(",")]


def _parse(part: str) -> Shape:
    match = re.fullmatch(r"(\d+)x(\d+)", part.strip())
    if match is None:
        raise ConfigError(f"--shapes: {part!r} is no shape; write rows x context, as in 48x1000, or 0x512 for a prompt")
    shape = Shape(int(match[1]), int(match[2]))
    least = 1 if shape.rows == 0 else 2
    if shape.context < least:
        raise ConfigError(f"--shapes: {part} must have at least {least} tokens of context")
    return shape
