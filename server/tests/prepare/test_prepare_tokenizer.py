"""A GGUF's vocabulary becomes a tokenizer.json that gives the ids the model was trained with."""

import itertools
import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_ggufs import TinyTokenizer, byte_alphabet, write_gguf
from tokenizers import Tokenizer, decoders, pre_tokenizers
from transformers import AutoTokenizer, Qwen2Tokenizer
from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

from headrace_server.prepare.gguf_file import GgufFile, read_gguf
from headrace_server.prepare.gguf_tokenizer import tokenizer_files
from headrace_server.prepare.sources import find_embedded_gguf

PROSE = """\
The capital of France is Paris. Don't; we'LL see — “quotes”, ‘single’ … and it's  done.\r\n\r\n\tTabs\there.
Grüße aus Köln. Жизнь прекрасна, 你好，世界！ こんにちは 안녕하세요 العربية हिन्दी ไทย e\u0301 \u00a0\u2003\u3000x
👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷 ﬁ ½ ² Ⅻ Å \ufeff \u200b zero\u200dwidth    four spaces\n\n\n   three lines
def f(x: int) -> str:\n    '''Doc.'''\n    return f"{x!r:>{width}}" if x != 0 else "\\n" * 3  # comment
SELECT * FROM t WHERE a<>'b' AND c>=d; <a href="x">&amp;</a> $HOME/.cache C:\\dir\\file https://x.y/z?q=a&b#c
"""
DIGITS = "In 2024, 3.14159 ≈ π; 1,000,000 or 1e-5; ４２ ٣٤ x1y22z333 v1.2.3\n  1. one\n 22. two   333   4444"
SPECIAL = "<|im_start|>user\nHi <|im_end|>\n<|endoftext|><|im_start|> <|im_start |> <repo_name>a/b<file_sep>"


def corpus(seed=1, count=400):
    """The texts above by lines and whole, and random strings from all planes but surrogates."""
    generator = random.Random(seed)
    ranges = [(0x20, 0x7E), (0xA0, 0x7FF), (0x800, 0xD7FF), (0xE000, 0x1FFFF), (0x09, 0x0D)]
    noise = [
        "".join(chr(generator.randint(*generator.choice(ranges))) for _ in range(generator.randint(1, 40)))
        for _ in range(count)
    ]
    return ["", " ", "\n", PROSE, DIGITS, SPECIAL, *PROSE.splitlines(), *DIGITS.split("\n"), *noise]


def build(gguf: GgufFile, **metadata) -> Tokenizer:
    """Our tokenizer.json of `gguf`, with some tokenizer.ggml.* keys replaced (None: left out)."""
    values = {**gguf.metadata, **{f"tokenizer.ggml.{key}": value for key, value in metadata.items()}}
    changed = replace(gguf, metadata={key: value for key, value in values.items() if value is not None})
    return Tokenizer.from_str(json.dumps(tokenizer_files(changed, 8192)["tokenizer.json"]))


@pytest.fixture(scope="module")
def smollm2() -> GgufFile:
    return read_gguf(find_embedded_gguf())


@pytest.fixture(scope="module")
def by_transformers():
    """transformers' own conversion of the embedded vocabulary, as if the file named another pre-tokenizer."""
    architecture, tokenizer, _ = get_gguf_tokenizer(str(find_embedded_gguf()))
    return lambda pre: convert_gguf_tokenizer(architecture, {**tokenizer, "pre_tokenizer_type": pre})[0]


def differing(ours, theirs, texts):
    """Texts that the two encode differently, added tokens found, none put around."""
    encode = [lambda text, each=each: each.encode(text, add_special_tokens=False).ids for each in (ours, theirs)]
    return [text for text in texts if encode[0](text) != encode[1](text)]


def test_smollm2_ids_equal_those_of_transformers_with_digits_cut_one_by_one(embedded, by_transformers):
    # transformers knows no pre-tokenizer `smollm` and takes GPT-2's; SmolLM2's own tokenizer.json cuts digits first.
    theirs = by_transformers("smollm")
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    ours = Tokenizer.from_file(str(embedded / "tokenizer.json"))
    assert differing(ours, theirs, corpus()) == []
    assert ours.encode("Hello world! 123").ids == [19556, 905, 17, 216, 33, 34, 35]
    assert ours.encode("The capital of France is").ids == [504, 3575, 282, 4649, 314]


@pytest.mark.parametrize(
    "pre", ["gpt-2", "llama-bpe", "llama-v3", "smaug-bpe", "pixtral", "falcon3", "deepseek-r1-qwen", "tekken"]
)
def test_other_pre_tokenizers_cut_as_transformers_does(pre, smollm2, by_transformers):
    assert differing(build(smollm2, pre=pre), by_transformers(pre), corpus()) == []


def test_qwen2_is_what_the_qwen2_class_of_transformers_does_normalisation_included(smollm2):
    tokens, merges = smollm2.metadata["tokenizer.ggml.tokens"], smollm2.metadata["tokenizer.ggml.merges"]
    theirs = Qwen2Tokenizer(
        vocab={token: number for number, token in enumerate(tokens)},
        merges=[tuple(merge.split(" ")) for merge in merges],
    )
    texts = [text for text in corpus() if "<" not in text]
    assert differing(build(smollm2, pre="qwen2"), theirs.backend_tokenizer, texts) == []


def test_a_file_that_does_not_name_its_pre_tokenizer_is_cut_in_four_steps_and_warned_about(smollm2, capsys):
    for pre in (None, "default"):
        pieces = build(smollm2, pre=pre).pre_tokenizer.pre_tokenize_str("It's ok... 12345")
        assert [piece for piece, _ in pieces] == ["It", "'", "s", "Ġok", "...", "Ġ", "123", "45"]
        assert "does not say how text is cut" in capsys.readouterr().err


def test_a_pre_tokenizer_nobody_knows_is_refused(tmp_path, prepare):
    error = prepare(write_gguf(tmp_path / "m.gguf", tokenizer=TinyTokenizer(pre="klingon"))).error
    assert "'klingon' is not supported" in error
    assert "smollm" in error


def test_transformers_loads_the_directory_and_encodes_alike(embedded):
    theirs = AutoTokenizer.from_pretrained(embedded)
    ours = Tokenizer.from_file(str(embedded / "tokenizer.json"))
    for text in (PROSE, DIGITS, SPECIAL):
        assert theirs(text)["input_ids"] == ours.encode(text).ids
    assert (theirs.bos_token, theirs.eos_token, theirs.pad_token) == ("<|im_start|>", "<|im_end|>", "<|im_end|>")
    chat = theirs.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True)
    assert chat.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_special_tokens_are_found_in_text_and_left_out_of_it(embedded):
    tokenizer = Tokenizer.from_file(str(embedded / "tokenizer.json"))
    ids = tokenizer.encode("<|im_start|>user\nHi<|im_end|>").ids
    assert ids == [1, 4093, 198, 26843, 2]
    assert tokenizer.decode(ids) == "user\nHi"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|im_start|>user\nHi<|im_end|>"


# SmolLM2's vocabulary has no token for some bytes: these control characters, and the first bytes of rare planes.
_SPELLABLE = st.characters(
    exclude_categories=["Cs"], exclude_characters="\x04\x06\x13\x14\x16\x1d", max_codepoint=0x3FFFF
)


@settings(max_examples=300)
@given(st.text(_SPELLABLE))
def test_decoding_gives_back_every_text_that_the_vocabulary_can_spell(text):
    tokenizer = _smollm2_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def _smollm2_tokenizer(made=[]):  # noqa: B006  # made once; hypothesis takes no module fixture
    if not made:
        made.append(build(read_gguf(find_embedded_gguf())))
    return made[0]


def test_every_byte_of_a_whole_alphabet_survives(tmp_path, prepare):
    tokenizer = Tokenizer.from_file(str(prepare(write_gguf(tmp_path / "m.gguf")).directory / "tokenizer.json"))
    text = "".join(map(chr, range(0x300))) + "\U0010ffff\ufeff"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"add_bos_token": False}, [51]),
        ({"add_bos_token": None}, [51]),
        ({"add_bos_token": True}, [1, 51]),
        ({"add_eos_token": True}, [51, 0]),
        ({"add_bos_token": True, "add_eos_token": True}, [1, 51, 0]),
        ({"add_bos_token": None, "pre": "llama-bpe"}, [1, 51]),
        ({"add_bos_token": False, "pre": "llama-bpe"}, [51]),
    ],
    ids=["no", "absent", "bos", "eos", "both", "absent for llama 3", "no for llama 3"],
)
def test_beginning_and_end_are_added_when_the_file_says_so(flags, expected, tmp_path, prepare):
    path = write_gguf(tmp_path / "m.gguf", tokenizer=TinyTokenizer(extra=flags))
    directory = prepare(path).directory
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    letter = 3 + byte_alphabet().index("0")
    assert letter == 51
    assert tokenizer.encode("0").ids == expected
    assert tokenizer.encode("0", add_special_tokens=False).ids == [51]
    assert AutoTokenizer.from_pretrained(directory)("0")["input_ids"] == expected


def test_user_defined_tokens_stay_in_decoded_text(tmp_path, prepare):
    types = [3, 3, 4] + [1] * 261
    path = write_gguf(tmp_path / "m.gguf", tokenizer=TinyTokenizer(extra={"token_type": types}))
    tokenizer = Tokenizer.from_file(str(prepare(path).directory / "tokenizer.json"))
    ids = tokenizer.encode("0<|turn|>").ids
    assert ids == [51, 2]
    assert tokenizer.decode(ids) == "0<|turn|>"


def test_named_chat_templates_are_listed(tmp_path, prepare):
    path = tmp_path / "m.gguf"
    templates = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    write_gguf(path, chat_template=templates)
    config = json.loads((prepare(path).directory / "tokenizer_config.json").read_text())
    assert config["chat_template"] == templates


@pytest.mark.parametrize(
    ("tokenizer", "words"),
    [
        (TinyTokenizer(model="bert"), "the tokenizer 'bert' is not supported"),
        (TinyTokenizer(extra={"merges": None}), "no merges"),
        (TinyTokenizer(extra={"merges": ["h q9"]}), "the merge 'h q9'"),
        (TinyTokenizer(extra={"token_type": [1, 1]}), "264 tokens and 2 entries of token_type"),
        (TinyTokenizer(extra={"eos_token_id": 999}), "eos token 999 outside"),
        (TinyTokenizer(extra={"add_bos_token": True, "bos_token_id": None}), "tokenizer.ggml.bos_token_id"),
        (TinyTokenizer(control=("<a>", "<a>", "<b>")), "the same token twice"),
        (TinyTokenizer(model="llama"), "no scores"),
    ],
)
def test_a_tokenizer_that_contradicts_itself_is_refused(tokenizer, words, tmp_path, prepare):
    extra = dict(tokenizer.extra)
    if tokenizer.model == "llama":
        extra["merges"] = None
    path = write_gguf(tmp_path / "m.gguf", tokenizer=replace(tokenizer, extra=extra))
    assert words in prepare(path).error


# Sentencepiece.

WORDS = ["the", "there", "then", "he", "her", "hello", "help", "helper", "low", "lower", "new", "newest", "widest"]


def sentencepiece_vocabulary():
    """<unk>, <s>, </s>, a user-defined token, 256 bytes, then pieces with falling scores."""
    pieces = sorted(
        {word[:end] for word in [*WORDS, *("▁" + word for word in WORDS)] for end in range(2, len(word) + 2)}
    )
    random.Random(3).shuffle(pieces)
    letters = sorted({letter for piece in pieces for letter in piece} | {"▁"})
    pieces = [piece for piece in pieces if len(piece) > 1]
    tokens = ["<unk>", "<s>", "</s>", "[TOOL]", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *letters]
    types = [2, 3, 3, 4] + [6] * 256 + [1] * (len(pieces) + len(letters))
    scores = [0.0] * 260 + [-float(rank) for rank in range(len(pieces) + len(letters))]
    return tokens, types, scores


def sentencepiece_tokenizer(tmp_path, prepare, **extra):
    tokens, types, scores = sentencepiece_vocabulary()
    values = {
        "tokens": tokens,
        "token_type": types,
        "scores": scores,
        "merges": None,
        "pre": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_bos_token": None,
        **extra,
    }
    path = write_gguf(tmp_path / "m.gguf", tokenizer=TinyTokenizer(model="llama", extra=values))
    return Tokenizer.from_file(str(prepare(path).directory / "tokenizer.json"))


def joined_by_score(text):
    """Sentencepiece's algorithm itself: join the neighbours of best score, leftmost first, until none can be."""
    tokens, types, scores = sentencepiece_vocabulary()
    ids = {token: number for number, token in enumerate(tokens) if types[number] == 1}
    symbols = list(("▁" + text).replace(" ", "▁"))
    while True:
        pairs = [(ids.get(a + b), place) for place, (a, b) in enumerate(itertools.pairwise(symbols))]
        best = max(((scores[token], -place) for token, place in pairs if token is not None), default=None)
        if best is None:
            break
        place = -best[1]
        symbols[place : place + 2] = ["".join(symbols[place : place + 2])]
    found = []
    for symbol in symbols:
        found += [ids[symbol]] if symbol in ids else [4 + byte for byte in symbol.encode()]
    return found


@settings(max_examples=300)
@given(st.lists(st.sampled_from([*WORDS, "h", "e", "x", " ", "é", "日", "\n", "ll", "  "]), max_size=12).map("".join))
def test_sentencepiece_joins_by_score_and_falls_back_to_bytes(text):
    tokenizer = _sentencepiece()
    expected = joined_by_score(text) if text else []
    assert tokenizer.encode(text, add_special_tokens=False).ids == expected
    assert tokenizer.decode(expected) == text


def _sentencepiece(made=[]):  # noqa: B006  # made once; hypothesis takes no module fixture
    if not made:
        from pathlib import Path

        from headrace_server.prepare.vocabulary import Vocabulary

        tokens, types, scores = sentencepiece_vocabulary()
        vocabulary = Vocabulary(Path("x"), "llama", None, tokens, types, scores, None, {"unk": 0}, [], None, None, None)
        from headrace_server.prepare.sentencepiece_bpe import sentencepiece_parts

        parts, _ = sentencepiece_parts(vocabulary)
        made.append(Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], **parts})))
    return made[0]


def test_sentencepiece_begins_with_bos_unless_told_otherwise(tmp_path, prepare):
    tokenizer = sentencepiece_tokenizer(tmp_path, prepare)
    assert tokenizer.encode("hello").ids == [1, *joined_by_score("hello")]


def test_sentencepiece_without_space_prefix(tmp_path, prepare):
    tokenizer = sentencepiece_tokenizer(tmp_path, prepare, add_space_prefix=False, add_bos_token=False)
    assert "▁" not in tokenizer.encode("hello").tokens[0]
    assert tokenizer.decode(tokenizer.encode(" hello").ids) == " hello"


def test_sentencepiece_finds_special_and_user_defined_tokens_whole(tmp_path, prepare):
    tokenizer = sentencepiece_tokenizer(tmp_path, prepare, add_bos_token=False)
    ids = tokenizer.encode("<s>hello[TOOL]</s>").ids
    assert ids == [1, *joined_by_score("hello"), 3, 2]
    assert tokenizer.decode(ids) == "hello[TOOL]"


def test_sentencepiece_ids_equal_those_of_transformers_within_a_sentence(tmp_path, prepare):
    ours = sentencepiece_tokenizer(tmp_path, prepare)
    tokens, types, scores = sentencepiece_vocabulary()
    fields = {"tokenizer_type": "llama", "tokens": tokens, "token_type": types, "scores": scores}
    theirs, _ = convert_gguf_tokenizer("llama", fields)
    generator = random.Random(9)
    texts = [" ".join(generator.choices([*WORDS, "é", "日本", "x\ny"], k=12)) for _ in range(200)]
    assert differing(ours, theirs, texts) == []


def test_the_decoder_and_pre_tokenizer_are_the_published_ones(embedded):
    tokenizer = json.loads((embedded / "tokenizer.json").read_text())
    digits, byte_level = tokenizer["pre_tokenizer"]["pretokenizers"]
    assert digits == {"type": "Digits", "individual_digits": True}
    assert byte_level == {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    assert tokenizer["post_processor"] is None
    assert isinstance(Tokenizer.from_file(str(embedded / "tokenizer.json")).decoder, decoders.ByteLevel)
