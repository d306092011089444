"""Runs the checks of one unmodified client, or of a browser, in an environment of its own, and reads what they say."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.server import ROOT

CHECKS = ROOT / "integration-tests" / "clients"
BROWSER = ROOT / "integration-tests" / "browser"
ENVIRONMENTS = ROOT / ".clients-venv"
TIME_LIMIT = 300.0  # seconds for the checks of one client

# A check that did not run is a check that failed: `make test` skips nothing.
PASSED = re.compile(r"^(?:\S+::(?P<pytest>\S+) PASSED|\s*✔ (?P<node>.+?) \([\d.]+ms\)$)")
NOT_RUN = re.compile(r"SKIPPED|XFAIL|XPASS|^\s*(?:﹣|⚠)", re.MULTILINE)


@dataclass(frozen=True)
class Report:
    """What a run of checks said."""

    passed: list[str]
    succeeded: bool
    output: str


def run_python_checks(environment: str, checks: str, servers: dict[str, str], home: Path) -> Report:
    """`checks` is a file of clients/python, run by pytest of .clients-venv/`environment`."""
    folder = CHECKS / "python"
    python = ENVIRONMENTS / environment / "bin" / "python"
    return _run([str(python), "-m", "pytest", "-v", "-c", "pytest.ini", checks], folder, servers, home)


def run_javascript_checks(checks: str, servers: dict[str, str], home: Path) -> Report:
    """`checks` is a file of clients/javascript, run by Node.js' own test runner."""
    command = ["node", "--test-reporter=spec", "--import", "./loopback_only.mjs", checks]
    return _run(command, CHECKS / "javascript", servers, home)


def run_browser_checks(checks: str, servers: dict[str, str], home: Path) -> Report:
    """`checks` is a file of browser/, run by Node.js' own test runner. The browser keeps its files in `home`."""
    command = ["node", "--test-reporter=spec", checks]
    variables = {"TMPDIR": str(home), "CHROMIUM": os.environ.get("CHROMIUM", "")}
    return _run(command, BROWSER, {**variables, **servers}, home)


def _run(command: list[str], folder: Path, servers: dict[str, str], home: Path) -> Report:
    """With nothing of the user's environment but the path to programs: no keys, no proxies, no settings."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **QUIET, **servers}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode("utf-8", "replace")
        return Report([], False, f"not done after {TIME_LIMIT} s:\n{said}")
    passed = [found["pytest"] or found["node"] for line in done.stdout.splitlines() if (found := PASSED.match(line))]
    succeeded = done.returncode == 0 and bool(passed) and not NOT_RUN.search(done.stdout)
    return Report(passed, succeeded, done.stdout)


# What makes the clients keep to themselves. (HF_HUB_OFFLINE would refuse our server's address as well.)
QUIET = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "PYTHONDONTWRITEBYTECODE": "1",
}
