"""Bad input gets TGI's status and error_type and a sentence that helps; the rest of the batch does not notice."""

import json
import threading
from typing import Any

import pytest

from harness.reference import Reference
from harness.server import Server

# field, bad value, a word the message must hold besides the field's name
FIELDS: list[tuple[str, Any, str]] = [
    ("best_of", 9, "2"),
    ("best_of", -1, "best_of"),
    ("temperature", 0, "positive"),
    ("temperature", -0.5, "positive"),
    ("temperature", "hot", "hot"),
    ("repetition_penalty", 0, "positive"),
    ("frequency_penalty", 3, "2.0"),
    ("frequency_penalty", -3, "-2.0"),
    ("top_k", 0, "positive"),
    ("top_k", -3, "top_k"),
    ("top_p", 0, "0.0"),
    ("top_p", 1.0, "1.0"),
    ("top_p", 2.0, "1.0"),
    ("typical_p", 0, "0.0"),
    ("typical_p", 1.0, "1.0"),
    ("do_sample", "yes", "yes"),
    ("max_new_tokens", 0, "positive"),
    ("max_new_tokens", 10**6, "1000000"),
    ("max_new_tokens", 3.5, "3.5"),
    ("max_new_tokens", "8", "8"),
    ("return_full_text", "no", "no"),
    ("stop", "text", "text"),
    ("stop", ["a", "b", "c", "d", "e"], "4"),
    ("stop", [1], "1"),
    ("truncate", 0, "positive"),
    ("truncate", 10**6, "1000000"),
    ("truncate", -1, "truncate"),
    ("details", "x", "x"),
    ("decoder_input_details", 1, "1"),
    ("seed", -1, "seed"),
    ("seed", 1.5, "1.5"),
    ("top_n_tokens", 99, "5"),
    ("top_n_tokens", -1, "top_n_tokens"),
    ("watermark", 5, "watermark"),
    ("grammar", {"type": "bnf", "value": "x"}, "grammar"),
    ("grammar", {"type": "regex", "value": "[0-9]"}, "grammar"),
    ("ignore_eos_token", 3, "3"),
]


@pytest.mark.parametrize(("field", "value", "named"), FIELDS, ids=[f"{f}={v!r}"[:40] for f, v, _ in FIELDS])
def test_a_bad_parameter_is_422_and_named(server: Server, field: str, value: Any, named: str) -> None:
    status, answer = server.post("/generate", {"inputs": "Hello", "parameters": {"max_new_tokens": 2, field: value}})
    assert status == 422, answer
    assert answer["error_type"] == "validation"
    assert field in answer["error"]
    assert named in answer["error"]


BODIES: list[tuple[str, bytes, int]] = [
    ("no JSON", b"hello", 400),
    ("half JSON", b'{"inputs": "x"', 400),
    ("empty", b"", 400),
    ("invalid UTF-8", b'{"inputs": "\xff\xfe"}', 400),
    ("an array", b"[1, 2]", 422),
    ("no inputs", b"{}", 422),
    ("null inputs", b'{"inputs": null}', 422),
    ("number for inputs", b'{"inputs": 5}', 422),
    ("empty inputs", b'{"inputs": ""}', 422),
    ("parameters a string", b'{"inputs": "x", "parameters": "y"}', 422),
    ("deep nesting", b'{"inputs": "x", "more": ' + b"[" * 100_000, 400),
    ("NaN", b'{"inputs": "x", "parameters": {"temperature": NaN}}', 400),
    ("a huge number", b'{"inputs": "x", "parameters": {"temperature": 1e999}}', 400),
    ("too large", b'{"inputs": "' + b"x" * 2_100_000 + b'"}', 413),
]


@pytest.mark.parametrize(("body", "expected"), [b[1:] for b in BODIES], ids=[b[0] for b in BODIES])
@pytest.mark.parametrize("path", ["/generate", "/"])
def test_a_bad_body(server: Server, path: str, body: bytes, expected: int) -> None:
    try:
        status, headers, raw = server.request("POST", path, body)
    except (BrokenPipeError, ConnectionResetError):
        assert expected == 413, "only a body over the limit may be cut off"
        return
    assert status == expected, raw
    assert headers["content-type"].startswith("application/json")
    assert b'"error"' in raw and b'"error_type"' in raw


def test_a_prompt_over_the_limit_is_told_both_numbers(server: Server) -> None:
    info = json.loads(server.get("/info")[1])
    limit = info["max_input_tokens"]
    status, answer = server.post("/generate", {"inputs": "word " * (limit + 50), "parameters": {"max_new_tokens": 1}})
    assert status == 422
    assert answer["error_type"] == "validation"
    assert str(limit) in answer["error"] or str(info["max_total_tokens"]) in answer["error"]


def test_a_missing_content_type_is_415(server: Server) -> None:
    status, _, raw = server.request("POST", "/generate", b'{"inputs": "x"}', {"content-type": "text/plain"})
    assert status == 415, raw


def test_unknown_names_are_ignored_as_tgi_does(server: Server) -> None:
    body = {"inputs": "Hello", "parameters": {"max_new_tokens": 1, "foo": 1}, "bar": [2]}
    assert server.post("/generate", body)[0] == 200


def test_unknown_routes_and_methods_answer_json(server: Server) -> None:
    status, _, raw = server.request("POST", "/nope", {"a": 1})
    assert status == 404 and b"error" in raw
    status, _, raw = server.request("GET", "/generate")
    assert status == 405 and b"error" in raw


def test_the_batch_does_not_notice_bad_neighbours(server: Server, reference: Reference) -> None:
    prompt = "The capital of France is"
    expected = reference.greedy(prompt, 40)
    answers: list[list[int]] = []
    good = [threading.Thread(target=lambda: answers.append(server.token_ids(prompt, 40))) for _ in range(4)]
    for thread in good:
        thread.start()
    for field, value, _ in FIELDS:
        server.post("/generate", {"inputs": "Hello", "parameters": {"max_new_tokens": 2, field: value}})
    for thread in good:
        thread.join()
    assert answers == [expected] * 4
