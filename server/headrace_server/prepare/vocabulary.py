"""The tokenizer part of a GGUF's metadata, checked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from headrace_server.prepare.errors import PrepareError
from headrace_server.prepare.gguf_config import end_token_ids
from headrace_server.prepare.gguf_file import GgufFile


class TokenType(IntEnum):
    """What `tokenizer.ggml.token_type` says about a token."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3  # matched whole in the text, dropped from decoded text
    USER_DEFINED = 4  # matched whole in the text, kept in decoded text
    UNUSED = 5  # padding of the vocabulary
    BYTE = 6  # <0x00> … <0xFF>


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in order of their ids, and everything else that makes a tokenizer of them."""

    path: Path  # for messages
    model: str  # "gpt2": byte-level BPE; "llama": sentencepiece
    pre: str | None  # name of the pre-tokenizer; None if the file does not say
    tokens: list[str]
    types: list[int]
    scores: list[float] | None
    merges: list[tuple[str, str]] | None
    special: dict[str, int]  # "bos", "eos", "unk", "pad" → id, as far as the file names them
    ends: list[int]  # ids that end an answer
    add_bos: bool | None  # None: the file does not say
    add_eos: bool | None
    add_space_prefix: bool | None

    def ids_of(self, *types: TokenType) -> list[int]:
        """Ids of all tokens of these types, ascending."""
        return [token for token, kind in enumerate(self.types) if kind in types]


def read_vocabulary(gguf: GgufFile) -> Vocabulary:
    """PrepareError when the file has no tokenizer, one of another kind, or one that contradicts itself."""
    values = {key.removeprefix(_PREFIX): value for key, value in gguf.metadata.items() if key.startswith(_PREFIX)}
    tokens = values.get("tokens")
    if not isinstance(tokens, list) or not tokens or not values.get("model"):
        raise PrepareError(f"{gguf.path}: has no tokenizer in its metadata; convert the original model again")
    if len(tokens) > gguf.tensors["token_embd.weight"].shape[0]:
        raise _contradiction(gguf.path, f"{len(tokens)} tokens and {gguf.tensors['token_embd.weight'].shape[0]} rows")
    special = {name: int(values[key]) for name, key in _SPECIAL_KEYS.items() if values.get(key) is not None}
    for name, token in special.items():
        if not 0 <= token < len(tokens):
            raise _contradiction(gguf.path, f"{name} token {token} outside of the vocabulary")
    if len(set(tokens)) != len(tokens):
        raise _contradiction(gguf.path, "the same token twice")
    return Vocabulary(
        path=gguf.path,
        model=str(values["model"]),
        pre=values.get("pre") or None,
        tokens=tokens,
        types=_parallel(gguf.path, values, "token_type", tokens) or [TokenType.NORMAL] * len(tokens),
        scores=_parallel(gguf.path, values, "scores", tokens),
        merges=_merges(gguf.path, values.get("merges"), set(tokens)),
        special=special,
        ends=[token for token in end_token_ids(gguf) if token < len(tokens)],
        add_bos=values.get("add_bos_token"),
        add_eos=values.get("add_eos_token"),
        add_space_prefix=values.get("add_space_prefix"),
    )


_PREFIX = "tokenizer.ggml."
_SPECIAL_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "pad": "padding_token_id",
}


def _parallel(path: Path, values: dict[str, Any], key: str, tokens: list[str]) -> list[Any] | None:
    """A list with one entry for each token, or None."""
    entries = values.get(key)
    if entries is not None and len(entries) != len(tokens):
        raise _contradiction(path, f"{len(tokens)} tokens and {len(entries)} entries of {key}")
    return entries


def _merges(path: Path, merges: list[str] | None, tokens: set[str]) -> list[tuple[str, str]] | None:
    """Merges as pairs; each must join two tokens to a third."""
    if merges is None:
        return None
    pairs = []
    for merge in merges:
        # A space separates the two, and neither starts with one: byte-level spelling has no space at all, and
        # llama.cpp's converter writes one that belongs to a token in that spelling.
        left, _, right = merge.partition(" ")
        if left not in tokens or right not in tokens or left + right not in tokens:
            raise _contradiction(path, f"the merge {merge!r} of something that is no token")
        pairs.append((left, right))
    return pairs


def _contradiction(path: Path, what: str) -> PrepareError:
    return PrepareError(f"{path}: its tokenizer contradicts itself ({what}); convert the original model again")
