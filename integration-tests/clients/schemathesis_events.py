"""One more demand of schemathesis: the events of a stream are as the document says of their data.

OpenAPI 3.1 can say that an event's data is JSON, but not of which shape; the descriptions of the routes name it.
"""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import schemathesis

NATIVE = ("StreamResponse", "ErrorResponse")
COMPLETIONS = ("Enveloped_CompletionChoice", "OpenAiErrorResponse")
CHATS = ("ChatChunk", "OpenAiErrorResponse")
# The shapes of the events of a route. Each stream may end with an error.
SHAPES = {
    "/": NATIVE,
    "/generate_stream": NATIVE,
    "/v1/completions": COMPLETIONS,
    "/v1/chat/completions": CHATS,
    "/invocations": (*NATIVE, *COMPLETIONS, *CHATS),
}


@schemathesis.check
def event_data_conformance(ctx: Any, response: Any, case: Any) -> None:
    if not response.headers.get("content-type", [""])[0].startswith("text/event-stream"):
        return
    components = case.operation.schema.raw_schema["components"]
    shapes = [{"$ref": f"#/components/schemas/{name}"} for name in SHAPES[case.path]]
    wanted = jsonschema_rs.validator_for({"anyOf": shapes, "components": components})
    for data in events(response.content.decode()):
        if data == "[DONE]" and SHAPES[case.path] != NATIVE:
            continue
        assert wanted.is_valid(json.loads(data)), f"an event is no {' and no '.join(SHAPES[case.path])}: {data}"


def events(stream: str) -> Iterator[str]:
    """The data of each event. What is neither an event nor a comment is a failure."""
    for event in stream.removesuffix("\n\n").split("\n\n"):
        if event.startswith(":"):
            continue
        assert event.startswith("data: "), event
        yield event.removeprefix("data: ")
