"""Seeded texts of about a given length, which no other test's prompts begin with."""

import random

WORDS = (
    *("river", "stone", "light", "green", "house", "winter", "paper", "garden", "music", "silver", "window", "story"),
    *("morning", "forest", "water", "bridge", "letter", "engine", "mountain", "table", "summer", "market", "island"),
)


def words(count: int, seed: int) -> str:
    """So many words, about one token each."""
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(count))
