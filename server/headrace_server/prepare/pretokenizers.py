"""How text is cut before byte-level BPE, by the name in `tokenizer.ggml.pre`.

Each entry gives what the published tokenizer.json of that family does; a name stands for one family's vocabulary. A
name that is not here is an error and no guess: a wrong cut gives ids that look right and answers that are slightly
worse, which nobody would trace back to here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

JsonObject = dict[str, Any]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class PreTokenizer:
    """Everything about a tokenizer that follows from its name alone."""

    splits: tuple[str | JsonObject, ...]  # regular expressions, or finished pre-tokenizers, one after the other
    normalizer: JsonObject | None = None
    ignore_merges: bool = False  # a piece that is a token is taken whole, whatever the merges say
    add_bos: bool = False  # unless the file says otherwise

    def to_json(self) -> JsonObject:
        """The `pre_tokenizer` of tokenizer.json: the cuts, then bytes spelled as letters."""
        steps = [
            {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated", "invert": False}
            if isinstance(split, str)
            else split
            for split in self.splits
        ]
        return {"type": "Sequence", "pretokenizers": [*steps, byte_level(use_regex=not self._cuts_words)]}

    @property
    def _cuts_words(self) -> bool:
        """Whether one of the cuts is a regular expression; if none is, ByteLevel's own (GPT-2's) does it."""
        return any(isinstance(split, str) for split in self.splits)


def byte_level(use_regex: bool) -> JsonObject:
    """The ByteLevel step; as a decoder it is the same object."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


_DIGITS: JsonObject = {"type": "Digits", "individual_digits": True}
_GPT2 = PreTokenizer(splits=())
_DIGITS_GPT2 = PreTokenizer(splits=(_DIGITS,))
_LLAMA3 = PreTokenizer(splits=(LLAMA3,), ignore_merges=True, add_bos=True)
# The vocabulary is Llama 3's with tokens added (SmolLM3, Smaug), the beginning token is not.
_LLAMA3_WITHOUT_BOS = PreTokenizer(splits=(LLAMA3,), ignore_merges=True)
_QWEN2 = PreTokenizer(splits=(QWEN2,), normalizer={"type": "NFC"})
_QWEN2_AS_IS = PreTokenizer(splits=(QWEN2,))
_TEKKEN = PreTokenizer(splits=(TEKKEN,), ignore_merges=True, add_bos=True)

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "smollm": _DIGITS_GPT2,
    "starcoder": _DIGITS_GPT2,
    "codeshell": _DIGITS_GPT2,
    "minerva-7b": _DIGITS_GPT2,
    "gpt-2": _GPT2,
    "olmo": _GPT2,
    "trillion": _GPT2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3,
    "pixtral": _LLAMA3,
    "midm-2.0": _LLAMA3,
    "smaug-bpe": _LLAMA3_WITHOUT_BOS,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2_AS_IS,
    "megrez": _QWEN2_AS_IS,
    "tekken": _TEKKEN,
}
"""`tokenizer.ggml.pre` → how text is cut."""

# Files older than the key, and those whose converter did not know: what llama.cpp does with them.
DEFAULT = PreTokenizer(splits=(r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
