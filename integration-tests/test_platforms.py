"""Platforms that start the server and choose its port, routes and model by variables: Vertex AI and SageMaker."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.server import Server

PROMPT = "The capital of France is"
GREEDY = {"max_new_tokens": 5, "do_sample": False}
CHAT = {"messages": [{"role": "user", "content": "Name a prime."}], "max_tokens": 5, "temperature": 0}


def chat_text(server: Server) -> str:
    status, answer = server.post("/v1/chat/completions", CHAT)
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"]


def test_vertex_ai_chooses_port_and_routes(launch: Callable[..., Server]) -> None:
    model = "/v1/endpoints/7/deployedModels/8"
    routes = {"AIP_PREDICT_ROUTE": f"{model}:predict", "AIP_HEALTH_ROUTE": model}
    # Vertex AI's port wins over the one that images set.
    server = launch("--dtype", "float32", env={**routes, "PORT": "1"}, port_variable="AIP_HTTP_PORT")
    assert server.get(model) == (200, "")
    body: dict[str, Any] = {"instances": [{"inputs": PROMPT, "parameters": GREEDY}, CHAT]}
    status, answer = server.post(f"{model}:predict", body)
    expected = [server.generate(PROMPT, **GREEDY)["generated_text"], chat_text(server)]
    assert (status, answer) == (200, {"predictions": expected})
    status, answer = server.post(f"{model}:predict", {"instances": [{"inputs": ""}]})
    assert (status, answer["error_type"]) == (422, "validation")
    assert server.get("/v1/endpoints/9/deployedModels/8")[0] == 404


def test_vertex_ai_may_choose_a_route_that_is_one_of_ours(launch: Callable[..., Server], model_dir: Path) -> None:
    routes = {"AIP_PREDICT_ROUTE": "/generate", "AIP_HEALTH_ROUTE": "/livez"}
    flags = ("--fake-shard", "--model-id", str(model_dir))
    server = launch(*flags, command="router", env=routes, port_variable="AIP_HTTP_PORT")
    assert server.get("/livez") == (200, "")
    status, answer = server.post("/generate", {"instances": [{"inputs": PROMPT, "parameters": GREEDY}]})
    assert (status, len(answer["predictions"])) == (200, 1)


def test_sagemaker_chooses_port_and_model_and_asks_ping_and_invocations(
    launch: Callable[..., Server], model_dir: Path
) -> None:
    variables = {"HF_MODEL_ID": str(model_dir), "SM_NUM_GPUS": "1", "HF_MODEL_TRUST_REMOTE_CODE": "true", "PORT": "1"}
    server = launch("--dtype", "float32", env=variables, port_variable="SAGEMAKER_BIND_TO_PORT")
    assert server.get("/ping") == (200, "")
    assert server.get("/info")[1].count(str(model_dir)) == 1
    text = server.generate(PROMPT, **GREEDY)["generated_text"]
    native = {"inputs": PROMPT, "parameters": {**GREEDY, "return_full_text": False}}
    assert server.post("/invocations", native) == (200, [{"generated_text": text}])
    completion = {"prompt": PROMPT, "max_tokens": 5, "temperature": 0}
    assert server.post("/invocations", completion)[1]["choices"][0]["text"] == text
    assert server.post("/invocations", CHAT)[1]["choices"][0]["message"]["content"] == chat_text(server)
    status, headers, stream = server.request("POST", "/invocations", {**native, "stream": True})
    assert (status, headers["content-type"], stream.count(b"data:")) == (200, "text/event-stream", 5)
