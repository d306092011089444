"""What the log says of requests: one line for each, with TGI's fields, and nothing of any prompt or answer."""

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from harness.server import Server, wait_for

SECRET = "zanzibar"  # in every text that a client sends
ANSWER = " elephant"  # one token, which every answer is made of
PROMPT = f"The secret of {SECRET} is"
MESSAGES = [{"role": "system", "content": f"You know {SECRET}."}, {"role": "user", "content": f"Tell of {SECRET}."}]
TOKENS = 3

DURATION = re.compile(r"([\d.]+)(ns|µs|ms|s)")
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
TEXT_LINE = re.compile(
    r"\S+Z +(?P<level>[A-Z]+) (?P<message>[^=]*?)(?P<fields>(?: ?\w+=(?:\"(?:[^\"\\]|\\.)*\"|\S+))*)"
)
TEXT_FIELD = re.compile(r"(\w+)=(\"(?:[^\"\\]|\\.)*\"|\S+)")


@dataclass(frozen=True)
class Traffic:
    """What a server wrote while it served, refused and lost requests, up to its end."""

    log: str
    answered: list[str]  # request ids
    refused: list[str]
    left: list[str]

    def line(self, request_id: str) -> dict[str, str]:
        named = re.compile(rf'request_id"?[=:]"{request_id}"')
        lines = [line for line in self.log.splitlines() if named.search(line)]
        assert len(lines) == 1, (request_id, lines)
        return parse(lines[0])


def answered_requests(bias: dict[str, float]) -> dict[str, tuple[str, Any]]:
    """Path and body by request id."""
    stop = [f"{SECRET} stop"]
    native = {"max_new_tokens": TOKENS, "logit_bias": bias, "stop": stop}
    openai = {"max_tokens": TOKENS, "temperature": 0, "logit_bias": bias, "stop": stop, "user": SECRET}
    completion = {"prompt": PROMPT, **openai}
    chat = {"messages": MESSAGES, **openai, "chat_template_kwargs": {"x": SECRET}, "documents": [{"title": SECRET}]}
    return {
        "generate": ("/generate", {"inputs": PROMPT, "parameters": {**native, "details": True}}),
        "sampled": ("/generate", {"inputs": PROMPT, "parameters": {**native, "do_sample": True, "seed": 5}}),
        "root": ("/", {"inputs": PROMPT, "parameters": native}),
        "generate-stream": ("/generate_stream", {"inputs": PROMPT, "parameters": native}),
        "completion": ("/v1/completions", {**completion, "echo": True, "logprobs": 1}),
        "completion-stream": ("/v1/completions", {**completion, "stream": True}),
        "chat": ("/v1/chat/completions", {**chat, "logprobs": True}),
        "chat-stream": ("/v1/chat/completions", {**chat, "stream": True}),
        "invocations": ("/invocations", {"inputs": PROMPT, "parameters": native}),
        "vertex": ("/vertex", {"instances": [{"inputs": PROMPT, "parameters": {**native, "do_sample": False}}]}),
    }


def refused_requests() -> dict[str, tuple[str, Any]]:
    """Bodies whose faults the answers name, some by their values."""
    grammar = {"type": "regex", "value": SECRET}
    tools = [{"type": "function", "function": {"name": SECRET}}]
    return {
        "temperature": ("/generate", {"inputs": PROMPT, "parameters": {"temperature": 0}}),
        "adapter": ("/generate", {"inputs": PROMPT, "parameters": {"adapter_id": SECRET}}),
        "long": ("/generate", {"inputs": f"{SECRET} " * 20_000}),
        "grammar": ("/generate_stream", {"inputs": PROMPT, "parameters": {"grammar": grammar}}),
        "suffix": ("/v1/completions", {"prompt": PROMPT, "suffix": SECRET}),
        "long-chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": f"{SECRET} " * 20_000}]}),
        "template": ("/v1/chat/completions", {"messages": MESSAGES, "chat_template": SECRET}),
        "tools": ("/v1/chat/completions", {"messages": MESSAGES, "tools": tools, "tool_choice": "required"}),
        "half": ("/generate", f'{{"inputs": "{SECRET}'.encode()),
        "object": ("/generate", {"inputs": {"text": SECRET}}),
        "word": ("/generate", {"inputs": PROMPT, "parameters": {"temperature": SECRET}}),
        "mixed": ("/v1/completions", {"prompt": [SECRET, 1]}),
        "no-list": ("/v1/chat/completions", {"messages": SECRET}),
        "part": ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": SECRET}]}]}),
        "list": ("/tokenize", {"inputs": [SECRET]}),
    }


ERROR_TYPES = {
    "suffix": "suffix not supported",
    "template": "template_error",
    "tools": "tool_error",
    "half": "bad_request",
}
LEFT: dict[str, tuple[str, dict[str, Any]]] = {
    "left-generate": ("/generate", {"inputs": PROMPT}),
    "left-stream": ("/generate_stream", {"inputs": PROMPT}),
    "left-chat": ("/v1/chat/completions", {"messages": MESSAGES, "stream": True}),
}


def leave(server: Server, request_id: str, path: str, body: dict[str, Any]) -> None:
    """Asks for a long answer and goes when it has begun."""
    endless = {"parameters": {"max_new_tokens": 4000, "ignore_eos_token": True}, "max_tokens": 4000, "ignore_eos": True}
    sent = json.dumps({**body, **endless}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-request-id: {request_id}\r\n"
    before = server.metric("headrace_generated_tokens_total")
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(f"{head}content-length: {len(sent)}\r\n\r\n".encode() + sent)
        wait_for(lambda: server.metric("headrace_generated_tokens_total") > before, "the answer to begin", 120)
    server.wait_until_idle()


def play(server: Server) -> None:
    _, tokens = server.post("/tokenize", {"inputs": ANSWER})
    assert len(tokens) == 1, tokens
    for request_id, (path, body) in answered_requests({str(tokens[0]["id"]): 100.0}).items():
        status, _, raw = server.request("POST", path, body, headers={"x-request-id": request_id})
        assert (status, ANSWER.encode() in raw) == (200, True), raw
    for request_id, (path, body) in refused_requests().items():
        status, _, raw = server.request("POST", path, body, headers={"x-request-id": request_id})
        assert status in (400, 422) or b'"error"' in raw, (request_id, status, raw)
    assert server.post("/chat_tokenize", {"messages": MESSAGES})[0] == 200
    for request_id, (path, body) in LEFT.items():
        leave(server, request_id, path, body)


def parse(line: str) -> dict[str, str]:
    """Level, message and fields of a line in either format."""
    if line.startswith("{"):
        return {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in json.loads(line).items()
        }
    found = TEXT_LINE.fullmatch(line)
    assert found, line
    fields = {
        name: json.loads(value) if value[0] == '"' else value for name, value in TEXT_FIELD.findall(found["fields"])
    }
    return {"level": found["level"], "message": found["message"].strip(), **fields}


@pytest.fixture(scope="module", params=[(), ("--json-output",)], ids=["text", "json"])
def traffic(request: pytest.FixtureRequest) -> Iterator[Traffic]:
    server = Server("--dtype", "float32", *request.param, env={"LOG_LEVEL": "", "LOG_COLORIZE": "false"})
    try:
        server.wait_until_ready()
        play(server)
        server.process.terminate()
        server.process.wait(60)
        log = server.log()
    finally:
        server.stop()
    yield Traffic(log, list(answered_requests({})), list(refused_requests()), list(LEFT))


def test_nothing_of_a_prompt_or_an_answer_is_logged(traffic: Traffic) -> None:
    leaks = [line for line in traffic.log.splitlines() if SECRET in line.lower() or ANSWER.strip() in line.lower()]
    assert leaks == []


def test_a_request_that_was_answered_has_one_line_with_tgis_fields(traffic: Traffic) -> None:
    for request_id in traffic.answered:
        line = traffic.line(request_id)
        assert (line["level"], line["message"]) == ("INFO", "Success"), line
        assert line["route"].startswith("/"), line
        assert f"max_new_tokens={TOKENS}" in line["parameters"].split(), line
        assert (line["generated_tokens"], line["finish_reason"]) == (str(TOKENS), "length"), line
        assert int(line["input_tokens"]) > 1, line
        assert ("seed" in line, line.get("seed", "5")) == (request_id == "sampled", "5"), line
        total, validation, queue, inference, each = (
            seconds(line[name])
            for name in ("total_time", "validation_time", "queue_time", "inference_time", "time_per_token")
        )
        assert total >= inference > 0 and total >= validation and total >= queue, line
        assert each * TOKENS == pytest.approx(inference, rel=1e-3), line


def test_a_request_that_was_refused_has_one_line_that_says_which_kind_of_fault(traffic: Traffic) -> None:
    for request_id in traffic.refused:
        line = traffic.line(request_id)
        expected = ERROR_TYPES.get(request_id, "validation")
        assert (line["level"], line["message"], line["error_type"]) == ("INFO", "Refused", expected), line


def test_a_client_that_leaves_has_one_line(traffic: Traffic) -> None:
    for request_id in traffic.left:
        line = traffic.line(request_id)
        assert (line["level"], line["message"]) == ("INFO", "Left by the client"), line


def seconds(shown: str) -> float:
    found = DURATION.fullmatch(shown)
    assert found, shown
    return float(found[1]) * SECONDS[found[2]]
