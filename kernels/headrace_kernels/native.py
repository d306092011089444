"""Loads the C++ library and calls its functions. Imports neither torch nor numpy.

Each operation's `cpu.py` declares a `Kernel`: a C function by its name, bound at the first call for the best
instruction set this machine has. ctypes gives up Python's lock while the function runs.
"""

import ctypes
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from headrace_kernels.build import EMULATED_LIBRARY, LIBRARY, PACKAGE, fingerprint, instruction_sets

POINTER = ctypes.c_void_p
INT = ctypes.c_int64
INT32 = ctypes.c_int32
FLOAT = ctypes.c_float

FLOAT32, BFLOAT16 = 0, 1
"""The numbers that say to C++ how elements are stored."""

OK, BAD_ARGUMENT, OUT_OF_MEMORY = 0, 1, 2

EMULATED = "amx_emulated"
"""The kernels for AMX with its tiles in plain C++: for tests on machines without them."""


class Kernel:
    """The C function `headrace_<name>_<instruction set>`.

    A call returns True if all went well and False if the function found an argument that it can't work on: the caller
    then finds out which, slowly, and raises. Lack of memory raises here.
    """

    _all: ClassVar["list[Kernel]"] = []

    def __init__(self, name: str, *argtypes: Any) -> None:
        self._name, self._argtypes = name, argtypes
        self._function: Any = None
        Kernel._all.append(self)

    def __call__(self, *arguments: Any) -> bool:
        """Call the function; pointers are addresses, such as `Tensor.data_ptr()` or `array.ctypes.data`."""
        status = (self._function or self._bind())(*arguments)
        if status == OUT_OF_MEMORY:
            raise MemoryError(f"{self._name}: no memory for a thread's scratch space")
        return status == OK

    def _bind(self) -> Any:
        library = _open(EMULATED_LIBRARY) if isa() == EMULATED else _load()
        self._function = getattr(library, f"headrace_{self._name}_{isa()}")
        self._function.argtypes, self._function.restype = self._argtypes, INT
        return self._function

    @classmethod
    def unbind_all(cls) -> None:
        """Forget which functions were bound, so that the next call looks again."""
        for kernel in cls._all:
            kernel._function = None


def address(array: Any) -> int:
    """Where a numpy array's elements begin: `array.ctypes.data`, without making an object of Python code for it."""
    first: int = array.__array_interface__["data"][0]
    return first


def available() -> bool:
    """Whether the library can be used. Where it can't, says so once, as a warning."""
    if _error() is None:
        return True
    _warn_once()
    return False


def why_unavailable() -> str:
    """Why the library can't be used, in a sentence."""
    return _error() or "it is available"


def isa() -> str:
    """The instruction set whose kernels are used, one of `instruction_sets()`."""
    return _forced or _load().headrace_best_isa().decode()


def force_isa(name: str | None) -> None:
    """Use the kernels of this instruction set from now on, None for the machine's best again. For tests.

    One that the machine lacks ends the process at the first call.
    """
    global _forced
    if name is not None and name not in (*instruction_sets(), EMULATED):
        raise ValueError(f"instruction set {name!r}: expected one of {', '.join(instruction_sets())}")
    _forced = name
    Kernel.unbind_all()


def num_threads() -> int:
    """Threads a kernel may use."""
    return _threads or len(os.sched_getaffinity(0))


def set_num_threads(threads: int | None) -> None:
    """Kernels use so many threads from now on; None for one a core that the process may use."""
    global _threads
    _threads = threads


_forced: str | None = None
_threads: int | None = None


def _load() -> ctypes.CDLL:
    return _open(LIBRARY)


@cache
def _open(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(os.fspath(path))
    library.headrace_best_isa.restype = ctypes.c_char_p
    return library


@cache
def _error() -> str | None:
    if not LIBRARY.exists():
        return f"{LIBRARY} does not exist: build it with `python -m headrace_kernels.build`"
    try:
        library = _load()
    except OSError as error:
        return f"{LIBRARY} can't be loaded ({error}): build it again with `python -m headrace_kernels.build`"
    if _is_stale(library):
        # Its functions may want other arguments than they are given.
        return f"{LIBRARY} was built from other sources: build it again with `python -m headrace_kernels.build`"
    return None


def _is_stale(library: ctypes.CDLL) -> bool:
    """Whether the sources that lie beside the library are not those it was built from. Reading them takes 2 ms."""
    if not (PACKAGE / "cpu" / "runtime.cpp").exists():
        return False
    built_from = getattr(library, "headrace_fingerprint", None)  # absent: it is older than the question
    if built_from is None:
        return True
    built_from.restype = ctypes.c_char_p
    return not built_from().decode().endswith(fingerprint())


@cache
def _warn_once() -> None:
    warnings.warn(f"the CPU kernels' plain torch definitions are used, which are slow: {_error()}", stacklevel=4)
