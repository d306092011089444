"""Finds the OpenMP runtime that torch uses, so that the C++ kernels run on the same threads.

Two runtimes in a process are two pools of threads that spin on the same cores. So the library links none: it is told
the address of one function, `GOMP_parallel`, in the runtime that libtorch_cpu.so itself depends on. GNU's libgomp
(torch's wheels bring one), LLVM's libomp and Intel's libiomp5 all have it.
"""

import ctypes
from pathlib import Path

import torch


def parallel_entry() -> int | None:
    """The address of `GOMP_parallel`, or None where torch has no OpenMP: kernels then use one thread."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        # The handle of a loaded library also finds what its dependencies define, and of those only.
        function = ctypes.CDLL(str(path)).GOMP_parallel
    except (OSError, AttributeError):
        return None
    return ctypes.cast(function, ctypes.c_void_p).value
