"""Unmodified clients, each in an environment of its own, against a server with the real model.

What a team changes when it moves from TGI or OpenAI to Headrace is the address, and nothing else.

`make clients` installs the environments: requirements/clients/*.txt into .clients-venv/, and clients/javascript. The
checks themselves are in clients/; each is a test by its name, and what ran is printed. One client by hand:

    python -m pytest integration-tests/test_clients.py -k litellm
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.clients import Report, run_javascript_checks, run_python_checks
from harness.server import Server

# Client, environment, file of checks. huggingface_hub is checked in its three generations: with requests, with httpx,
# and the newest.
PYTHON_CLIENTS = {
    "openai": ("openai", "openai_checks.py"),
    "text_generation": ("text-generation", "text_generation_checks.py"),
    "huggingface_hub 0.36": ("text-generation", "huggingface_hub_checks.py"),
    "huggingface_hub 1": ("langchain", "huggingface_hub_checks.py"),
    "huggingface_hub 2": ("openai", "huggingface_hub_checks.py"),
    "langchain_openai": ("langchain", "langchain_openai_checks.py"),
    "langchain_huggingface": ("langchain", "langchain_huggingface_checks.py"),
    "litellm": ("openai", "litellm_checks.py"),
}
JAVASCRIPT_CLIENTS = {
    "openai": "openai_checks.mjs",
    "@huggingface/inference": "huggingface_inference_checks.mjs",
}
KEY = "open-sesame"


@pytest.fixture(scope="module")
def servers(shared_server: Server, model_dir: Path) -> Iterator[dict[str, str]]:
    """The addresses that the checks want: the real model; one that is locked; one that is soon busy."""
    fake = ("--fake-shard", "--model-id", str(model_dir))
    locked = Server(*fake, "--api-key", KEY, command="router")
    busy = Server(*fake, "--max-concurrent-requests", "1", "--fake-step-us", "20000", command="router")
    try:
        for server in (locked, busy):
            server.wait_until_ready()
        yield {
            "HEADRACE_URL": shared_server.url,
            "HEADRACE_LOCKED_URL": locked.url,
            "HEADRACE_BUSY_URL": busy.url,
            "HEADRACE_KEY": KEY,
        }
    finally:
        for server in (locked, busy):
            server.stop()


@pytest.fixture
def judge(server: Server, capsys: pytest.CaptureFixture[str]) -> Callable[[str, Report], None]:
    """Prints what ran, and fails with all that was said. `server`: idle before, and idle again afterwards."""

    def judge(client: str, report: Report) -> None:
        with capsys.disabled():
            print(f"\n{client}: {len(report.passed)} checks passed")
            for name in report.passed:
                print(f"    {name.removeprefix('test_').replace('_', ' ')}")
        assert report.succeeded, report.output

    return judge


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_a_python_client_works_unchanged(client: str, servers, judge, tmp_path: Path):
    environment, checks = PYTHON_CLIENTS[client]
    judge(client, run_python_checks(environment, checks, servers, home=tmp_path))


@pytest.mark.parametrize("client", JAVASCRIPT_CLIENTS)
def test_a_javascript_client_works_unchanged(client: str, servers, judge, tmp_path: Path):
    judge(client, run_javascript_checks(JAVASCRIPT_CLIENTS[client], servers, home=tmp_path))
