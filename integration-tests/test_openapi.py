"""The OpenAPI document is true: schemathesis makes thousands of requests from it, and no answer contradicts it.

A minute and one seed here; `make fuzz-api` tries another seed for ten.
"""

from pathlib import Path

import pytest

from harness.api_fuzz import fuzz, start_server

SEED = 20
SECONDS = 60


def test_no_answer_is_a_server_error_or_contradicts_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    server = start_server()
    try:
        with (tmp_path / "report").open("w+", encoding="utf-8") as file:
            passed = fuzz(server, SECONDS, SEED, tmp_path, file)
            file.seek(0)
            report = file.read()
        log = server.log()
    finally:
        server.stop()
    with capsys.disabled():
        print(f"\nschemathesis, seed {SEED}: " + " ".join(report.partition("Test cases:")[2].split("\n")[1:2]).strip())
    assert passed, f"{report}\n{log[-4000:]}"
