"""What is measured: lists of (prompt, tokens to generate), the same for every server from one seed."""

import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer


@dataclass(frozen=True)
class Job:
    prompt: str
    output_tokens: int


@dataclass(frozen=True)
class Workload:
    """`concurrency` jobs at a time, in order."""

    name: str
    jobs: list[Job]
    concurrency: int


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


def build(name: str, tokenizer_file: Path, count: int, seed: int = 0) -> Workload:
    """`one`: decode one at a time; `decode`: short prompts, long answers; `seed`: half 50/20, half 500/200 tokens."""
    draw = random.Random(seed)
    shapes = {
        "one": lambda: (32, 128),
        "decode": lambda: (32, 256),
        "seed": lambda: (50, 20) if draw.random() < 0.5 else (500, 200),
        "prefill": lambda: (1024, 4),
    }
    jobs = []
    for _ in range(count):
        prompt_tokens, output_tokens = shapes[name]()
        jobs.append(Job(text(tokenizer_file, prompt_tokens, draw), output_tokens))
    return Workload(name, jobs, concurrency=1 if name == "one" else count)
