"""`tokenizer.ggml.model` = llama: a sentencepiece BPE vocabulary with scores, as Llama 2 and Mistral have it.

Sentencepiece joins, again and again, the two neighbours whose union has the best score. BPE with a list of merges
does the same when the list holds every way to split every token, the best score first. Characters that are no token
fall back to byte tokens.
"""

from __future__ import annotations

from headrace_server.prepare.byte_level_bpe import bpe_model
from headrace_server.prepare.errors import PrepareError
from headrace_server.prepare.pretokenizers import JsonObject
from headrace_server.prepare.vocabulary import TokenType, Vocabulary

SPACE = "▁"


def sentencepiece_parts(vocabulary: Vocabulary) -> tuple[JsonObject, bool]:
    """normalizer, pre_tokenizer, decoder and model of tokenizer.json; BOS is added unless the file says otherwise."""
    if vocabulary.scores is None and vocabulary.merges is None:
        raise PrepareError(
            f"{vocabulary.path}: its tokenizer has no scores in the metadata; convert the original model again"
        )
    merges = vocabulary.merges or merges_from_scores(vocabulary)
    prefix = vocabulary.add_space_prefix is not False
    steps: list[JsonObject] = [{"type": "Replace", "pattern": {"String": " "}, "content": SPACE}]
    undo: list[JsonObject] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        steps.insert(0, {"type": "Prepend", "prepend": SPACE})
        undo.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    parts = {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": undo},
        "model": bpe_model(vocabulary, merges, byte_fallback=True, unknown=_unknown(vocabulary)),
    }
    return parts, True


def merges_from_scores(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """Every split of every normal token into two tokens, best score first; equal scores by id, then shorter left."""
    scores = vocabulary.scores or []
    pieces = {vocabulary.tokens[token] for token in vocabulary.ids_of(TokenType.NORMAL, TokenType.USER_DEFINED)}
    merges: list[tuple[str, str]] = []
    for token in sorted(vocabulary.ids_of(TokenType.NORMAL), key=lambda token: (-scores[token], token)):
        text = vocabulary.tokens[token]
        splits = ((text[:cut], text[cut:]) for cut in range(1, len(text)))
        merges += [(left, right) for left, right in splits if left in pieces and right in pieces]
    return merges


def _unknown(vocabulary: Vocabulary) -> str | None:
    """The token for what not even bytes can spell."""
    unknown = vocabulary.special.get("unk")
    if unknown is None:
        unknown = next(iter(vocabulary.ids_of(TokenType.UNKNOWN)), None)
    return None if unknown is None else vocabulary.tokens[unknown]
