"""A GGUF's vocabulary as tokenizer.json and tokenizer_config.json."""

from __future__ import annotations

from typing import Any

from headrace_server.prepare.byte_level_bpe import byte_level_parts
from headrace_server.prepare.errors import PrepareError
from headrace_server.prepare.gguf_file import GgufFile
from headrace_server.prepare.pretokenizers import JsonObject
from headrace_server.prepare.sentencepiece_bpe import sentencepiece_parts
from headrace_server.prepare.vocabulary import TokenType, Vocabulary, read_vocabulary

_KINDS = {"gpt2": byte_level_parts, "llama": sentencepiece_parts}


def tokenizer_files(gguf: GgufFile, max_positions: int) -> dict[str, JsonObject]:
    """The two tokenizer files by name. PrepareError when the metadata holds no tokenizer that can be rebuilt."""
    vocabulary = read_vocabulary(gguf)
    if vocabulary.model not in _KINDS:
        raise PrepareError(
            f"{gguf.path}: the tokenizer {vocabulary.model!r} is not supported; supported are {', '.join(_KINDS)}"
        )
    parts, add_bos_by_default = _KINDS[vocabulary.model](vocabulary)
    add_bos = add_bos_by_default if vocabulary.add_bos is None else vocabulary.add_bos
    add_eos = bool(vocabulary.add_eos)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary),
        **{name: parts[name] for name in ("normalizer", "pre_tokenizer")},
        "post_processor": _post_processor(vocabulary, add_bos, add_eos),
        **{name: parts[name] for name in ("decoder", "model")},
    }
    config: JsonObject = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": add_bos,
        "add_eos_token": add_eos,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_positions,
        **{f"{name}_token": vocabulary.tokens[token] for name, token in vocabulary.special.items()},
    }
    if (template := _chat_template(gguf.metadata)) is not None:
        config["chat_template"] = template
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": config}


def _added_tokens(vocabulary: Vocabulary) -> list[JsonObject]:
    """Tokens that are found whole in the text, and of them the special ones, which decoded text leaves out."""
    special = {
        *vocabulary.ids_of(TokenType.CONTROL, TokenType.UNKNOWN),
        *vocabulary.ends,
        *(vocabulary.special[name] for name in ("bos", "eos") if name in vocabulary.special),
    }
    return [
        {
            "id": token,
            "content": vocabulary.tokens[token],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token in special,
        }
        for token in sorted(special | set(vocabulary.ids_of(TokenType.USER_DEFINED)))
    ]


def _post_processor(vocabulary: Vocabulary, add_bos: bool, add_eos: bool) -> JsonObject | None:
    """Puts the beginning token before every text and the end token behind it, as far as the model wants them."""
    names = [name for name, wanted in (("bos", add_bos), ("eos", add_eos)) if wanted]
    if not names:
        return None
    for name in names:
        if name not in vocabulary.special:
            raise PrepareError(
                f"{vocabulary.path}: its tokenizer wants a {name} token and does not name one "
                f"(tokenizer.ggml.{name}_token_id); convert the original model again"
            )
    tokens = {name: vocabulary.tokens[vocabulary.special[name]] for name in names}

    def sequence(label: str, type_id: int) -> list[JsonObject]:
        text: JsonObject = {"Sequence": {"id": label, "type_id": type_id}}
        around = {name: {"SpecialToken": {"id": token, "type_id": type_id}} for name, token in tokens.items()}
        return [step for step in (around.get("bos"), text, around.get("eos")) if step is not None]

    return {
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": sequence("A", 0) + sequence("B", 1),
        "special_tokens": {
            token: {"id": token, "ids": [vocabulary.special[name]], "tokens": [token]} for name, token in tokens.items()
        },
    }


def _chat_template(metadata: dict[str, Any]) -> str | list[JsonObject] | None:
    """The template, or, when the file has named ones beside it, all of them as a list with names."""
    default = metadata.get("tokenizer.chat_template")
    named = [
        {"name": name, "template": template}
        for name in metadata.get("tokenizer.chat_templates") or []
        if (template := metadata.get(f"tokenizer.chat_template.{name}")) is not None
    ]
    if not named:
        return default
    return ([{"name": "default", "template": default}] if default is not None else []) + named
