"""Where conversions live, and how one becomes visible only when it is whole.

A conversion is written into a hidden directory beside its place and renamed there at the end; a rename is atomic, so
whatever bears a final name is whole. A process that dies leaves only a hidden directory, which the next conversion of
the same file removes. A lock makes two processes that want the same file convert it once; where the file system has
no locks the rename alone keeps both safe.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace_server.prepare.checkpoint import check_directory
from headrace_server.prepare.errors import PrepareError
from headrace_server.weights.index import SOURCE_LINK

FORMAT = 2
"""Raised whenever the same GGUF would give different files, so that older conversions are not taken for new ones."""


def key(gguf: Path, identity: str) -> str:
    """The name of the conversion of `gguf`; `identity` changes whenever its content may have changed."""
    fingerprint = hashlib.sha256(f"{FORMAT} {identity}".encode()).hexdigest()[:16]
    return f"{gguf.stem}-{fingerprint}"


def lookup(cache_dir: Path, name: str, gguf: Path) -> Path | None:
    """The finished conversion called `name`, or None. Reads headers, writes nothing but a link that went stale."""
    directory = cache_dir / name
    if not directory.is_dir():
        return None
    try:
        check_directory(directory)
    except PrepareError:
        return None  # Somebody removed or cut a file; `publish` makes it anew.
    _link_source(directory, gguf)
    return directory


def publish(cache_dir: Path, name: str, gguf: Path, write: Callable[[Path], None], size: int) -> Path:
    """Let `write` fill a directory of about `size` bytes, and give it its final name.

    Safe against other processes that do the same, and against being killed at any point.
    """
    _make_writable(cache_dir)
    with _lock(cache_dir / f".{name}.lock", name) as alone:
        if (directory := lookup(cache_dir, name, gguf)) is not None:
            return directory  # Another process made it while we waited.
        if alone:
            _remove_leftovers(cache_dir, name)
        _require_space(cache_dir, size)
        work = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=".part", dir=cache_dir))
        try:
            write(work)
            _link_source(work, gguf)
            work.chmod(0o755)  # mkdtemp makes it private; a cache may be shared
            _rename_into_place(work, cache_dir / name)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return cache_dir / name


def _make_writable(cache_dir: Path) -> None:
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        reason = None if os.access(cache_dir, os.W_OK | os.X_OK) else "it is not writable"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason is not None:
        raise PrepareError(
            f"{cache_dir} cannot hold converted models: {reason}; name another place with --cache-dir (HEADRACE_CACHE)"
        )


def _rename_into_place(work: Path, directory: Path) -> None:
    """Rename `work` to `directory`; a whole one that is there already wins, a damaged one is moved out first."""
    if directory.exists():
        try:
            check_directory(directory)
            return
        except PrepareError:
            aside = work.with_name(work.name + ".damaged")
            directory.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
    work.rename(directory)


def _remove_leftovers(cache_dir: Path, name: str) -> None:
    """Remove what killed conversions left. Only with the lock held: nobody else is writing there."""
    for leftover in cache_dir.glob(f".{glob.escape(name)}.*.part*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _require_space(cache_dir: Path, size: int) -> None:
    free = shutil.disk_usage(cache_dir).free
    if free < size:
        raise PrepareError(
            f"{cache_dir}: the converted model needs {size / 1e6:.0f} MB and {free / 1e6:.0f} MB are free; "
            "free some space or name another place with --cache-dir"
        )


def _link_source(directory: Path, gguf: Path) -> None:
    """Point the directory's link at `gguf` unless it does already; atomic, so a reader never finds it missing."""
    link = directory / SOURCE_LINK
    if link.is_symlink() and link.readlink() == gguf:
        return
    fresh = directory / f".{SOURCE_LINK}.{os.getpid()}"
    try:
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(gguf)
        fresh.replace(link)
    except OSError:
        if not link.exists():
            raise  # In a read-only cache a link that still leads to the same content is good enough.


@contextmanager
def _lock(path: Path, name: str) -> Iterator[bool]:
    """Hold an exclusive lock on `path`; False where the file system cannot lock. The kernel drops it on death."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that converts {name}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
            return
        yield True
