"""`tokenizer.ggml.model` = gpt2: byte-level BPE with its merges, as GPT-2, Llama 3, Qwen and SmolLM have it."""

from __future__ import annotations

import sys

from headrace_server.prepare.errors import PrepareError
from headrace_server.prepare.pretokenizers import (
    DEFAULT,
    PRE_TOKENIZERS,
    JsonObject,
    PreTokenizer,
    byte_level,
)
from headrace_server.prepare.vocabulary import Vocabulary


def byte_level_parts(vocabulary: Vocabulary) -> tuple[JsonObject, bool]:
    """normalizer, pre_tokenizer, decoder and model of tokenizer.json; and whether BOS is added unless the file says."""
    if vocabulary.merges is None:
        raise PrepareError(
            f"{vocabulary.path}: its tokenizer has no merges in the metadata; convert the original model again"
        )
    pre = _pre_tokenizer(vocabulary)
    parts = {
        "normalizer": pre.normalizer,
        "pre_tokenizer": pre.to_json(),
        "decoder": byte_level(use_regex=True),
        "model": bpe_model(vocabulary, vocabulary.merges, ignore_merges=pre.ignore_merges),
    }
    return parts, pre.add_bos


def bpe_model(
    vocabulary: Vocabulary,
    merges: list[tuple[str, str]],
    *,
    ignore_merges: bool = False,
    byte_fallback: bool = False,
    unknown: str | None = None,
) -> JsonObject:
    """The `model` of tokenizer.json."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unknown,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": byte_fallback,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": {token: number for number, token in enumerate(vocabulary.tokens)},
        "merges": merges,
    }


def _pre_tokenizer(vocabulary: Vocabulary) -> PreTokenizer:
    if vocabulary.pre is None or vocabulary.pre == "default":
        print(
            f"warning: {vocabulary.path} does not say how text is cut into words (tokenizer.ggml.pre); a general rule "
            "is used, and answers may be worse than the model's own tokenizer would give",
            file=sys.stderr,
        )
        return DEFAULT
    if vocabulary.pre not in PRE_TOKENIZERS:
        raise PrepareError(
            f"{vocabulary.path}: the pre-tokenizer {vocabulary.pre!r} is not supported; supported are "
            f"{', '.join(PRE_TOKENIZERS)}; use the model's safetensors with its tokenizer.json instead"
        )
    return PRE_TOKENIZERS[vocabulary.pre]
