"""`make gpu-check` itself, as far as it can be tried without a GPU: in Triton's interpreter, with tiny sizes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from headrace_kernels.gpu.cases import OPERATIONS
from headrace_server.gpu_check.report import Line, Report


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace_server.gpu_check", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def test_a_dry_run_goes_through_all_of_it(tmp_path: Path) -> None:
    done = run("--dry", "--json", str(tmp_path / "results.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    names = [line["name"] for line in results["lines"]]
    for operation in OPERATIONS:
        assert any(name.startswith(operation) for name in names), operation
    assert any("recorded" in name for name in names)
    assert any("a prompt of" in name for name in names)
    missing = [line["note"] for line in results["lines"] if "time is over" in line.get("note", "")]
    assert missing == []
    assert [line["name"] for line in results["lines"] if line.get("right") is False] == []


def test_without_a_gpu_it_says_so() -> None:
    refused = run(CUDA_VISIBLE_DEVICES="")
    assert refused.returncode == 2
    assert refused.stderr == "error: torch sees no GPU; --dry tries the check itself in Triton's interpreter\n"


def test_a_wrong_number_is_a_failure_and_a_missed_goal_is_none() -> None:
    report = Report()
    report.add(Line("section", "slow", us=12.0, share=0.5, goal=0.85))
    assert report.lines[0].reached is False
    assert report.all_right
    report.add(Line("section", "wrong", error=0.5, right=False))
    assert not report.all_right
    assert "WRONG by 5.0e-01" in report.lines[1].text()
    assert report.as_json()[0] == {
        "section": "section", "name": "slow", "us": 12.0, "share": 0.5, "goal": 0.85, "reached": False
    }  # fmt: skip


@pytest.mark.parametrize(
    "problem, note, all_right",
    [
        (RuntimeError("an illegal memory access was encountered"), "RuntimeError: an illegal memory access", False),
        (torch.OutOfMemoryError("Tried to allocate 36 GiB"), "no memory", True),
    ],
    ids=["a kernel breaks", "a GPU is small"],
)
def test_what_does_not_run_hides_nothing_else(problem: Exception, note: str, all_right: bool) -> None:
    def measure() -> list[Line]:
        raise problem

    report = Report()
    report.attempt("section", "first", measure)
    report.attempt("section", "second", lambda: [Line("section", "second", us=1.0)])
    assert [line.name for line in report.lines] == ["first", "second"]
    assert note in report.lines[0].text()
    assert report.all_right is all_right
    assert ("WRONG" in report.lines[0].text()) is not all_right
