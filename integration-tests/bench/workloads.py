"""What open loops send: prompts and tokens to generate, the same from one seed. Closed ones are `headrace bench`'s."""

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer


@dataclass(frozen=True)
class Job:
    prompt: str
    output_tokens: int


@cache
def _words(tokenizer_file: Path) -> tuple[Tokenizer, list[str]]:
    """The tokenizer, and lower-case words that are one token each."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    texts = (tokenizer.decode([i]) for i in range(1000, 20000))
    return tokenizer, [text for text in texts if text.startswith(" ") and text[1:].isalpha() and text.islower()]


def text(tokenizer_file: Path, tokens: int, draw: random.Random) -> str:
    """Random words of exactly so many tokens."""
    tokenizer, words = _words(tokenizer_file)
    ids = tokenizer.encode("".join(draw.choice(words) for _ in range(tokens)), add_special_tokens=False).ids
    return tokenizer.decode(ids[:tokens])


def mixture(tokenizer_file: Path, count: int, seed: int = 0) -> list[Job]:
    """Half 50 tokens in and 20 out, half 500 in and 200 out."""
    draw = random.Random(seed)
    jobs = []
    for _ in range(count):
        prompt_tokens, output_tokens = (50, 20) if draw.random() < 0.5 else (500, 200)
        jobs.append(Job(text(tokenizer_file, prompt_tokens, draw), output_tokens))
    return jobs
