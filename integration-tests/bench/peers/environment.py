"""Virtual environments of peers, one each, and the sentences that say why one cannot be made."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.peers.peer import Unavailable

ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = ROOT / "requirements" / "peers"


def require_space(home: Path, gib: float) -> None:
    home.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(home).free / 2**30
    if free < gib:
        raise Unavailable(
            f"it needs {gib:g} GiB in {home}, which has {free:.1f}; free some, or name another with --home"
        )


def require_program(*names: str) -> str:
    """The first of the programs that is there."""
    for name in names:
        if path := shutil.which(name):
            return path
    raise Unavailable(
        f"it is compiled here and needs {' or '.join(names)}: on Debian or Ubuntu 'apt-get install cmake g++'"
    )


def once(place: Path, make: Callable[[], None]) -> None:
    """Calls `make`, which fills `place`, unless that was done before; what half of it left is removed first."""
    mark = place / ".ready"
    if mark.exists():
        return
    shutil.rmtree(place, ignore_errors=True)
    make()
    mark.touch()


def create_environment(place: Path) -> Path:
    """Its Python."""
    command([sys.executable, "-m", "venv", place])
    return place / "bin" / "python"


def pip(python: Path, *words: object) -> None:
    command([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *words])


def command(words: list[object], cwd: Path | None = None) -> str:
    """What it printed. Raises Unavailable with the end of what it said if it failed."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        shown = " ".join(str(word) for word in words)
        raise Unavailable(f"'{shown}' failed:\n{done.stdout.strip()[-600:]}")
    return done.stdout
