"""The three wheels, installed away from the checkout, serve."""

import os
import subprocess
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.server import PYTHON, ROOT, Server


@pytest.fixture(scope="module")
def wheels() -> list[Path]:
    subprocess.run([str(ROOT / "scripts" / "build-wheels")], check=True, env={**os.environ, "NO_COLOR": "1"})
    return sorted((ROOT / "dist").glob("*.whl"))


@pytest.fixture
def elsewhere(tmp_path: Path, wheels: list[Path]) -> Path:
    """A fresh virtual environment with the wheels in it. It sees the torch of .venv, but none of its editables."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=True, symlinks=True)
    pip = [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, *map(str, wheels)], check=True)
    version = sysconfig.get_python_version()
    site = place / "lib" / f"python{version}" / "site-packages"
    # A path line makes a directory importable but runs no .pth files in it, so the editable installs stay unseen.
    (site / "borrowed.pth").write_text(f"{PYTHON.parents[1] / 'lib' / f'python{version}' / 'site-packages'}\n")
    return place


def test_there_is_a_wheel_for_the_binary_and_one_for_each_package(wheels: list[Path]) -> None:
    assert [wheel.name.split("-")[0] for wheel in wheels] == ["headrace", "headrace_kernels", "headrace_server"]
    assert "none-any" not in wheels[1].name, "the kernels are compiled: their wheel is for one platform"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["text-generation-launcher", "--help"], "Usage: text-generation-launcher"),
        (["text-generation-router", "--help"], "Usage: text-generation-router"),
        (["text-generation-server", "--help"], "usage: text-generation-server"),
    ],
    ids=["launcher", "router", "server"],
)
def test_text_generation_inferences_programs_are_installed_too(words: list[str], said: str, elsewhere: Path) -> None:
    program = str(elsewhere / "bin" / words[0])
    assert said in subprocess.run([program, *words[1:]], check=True, stdout=subprocess.PIPE, text=True).stdout


def test_the_installed_binary_serves(elsewhere: Path, launch: Callable[..., Server]) -> None:
    where = [str(elsewhere / "bin" / "python"), "-c", "import headrace_server as s; print(s.__file__)"]
    assert str(elsewhere) in subprocess.run(where, check=True, stdout=subprocess.PIPE, text=True, cwd="/").stdout
    server = launch("--dtype", "float32", binary=elsewhere / "bin" / "headrace")
    assert str(elsewhere) in " ".join(server.shard().cmdline()), "the shard must run in the environment of the wheels"
    assert server.generate("The capital of France is", max_new_tokens=4)["generated_text"].strip()
