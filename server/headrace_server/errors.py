"""Everything that goes wrong on purpose. The message is one sentence that an operator can act on.

HeadraceError
├── ConfigError     the model directory's config.json, or a flag, asks for what does not work here
├── WeightsError    a checkpoint file is missing, damaged, or not what config.json says
├── CapacityError   there is no memory for the model, the KV pool that was asked for, or what steps need beside them
├── ProtocolError   the router sent a message that cannot be executed: the whole step fails
├── Occupied        the shard serves another router, which goes on
├── Closed          the shard is about to end and takes nothing new
├── ShortOfMemory   one of several ranks had no memory for a step, and did what the others need of it all the same
├── LostDevice      a GPU does not answer any more: nothing that this process asks of it will work
└── LostRank        another rank is gone, and this one is of no use without it
"""

import errno
import re
import sys


class HeadraceError(Exception):
    """Base of all errors that are reported as one line instead of a traceback."""


class ConfigError(HeadraceError):
    """The configuration asks for something that does not work here."""


class WeightsError(HeadraceError):
    """A checkpoint file is missing, damaged, or not what config.json says."""


class CapacityError(HeadraceError):
    """There is no memory for the model, the KV pool that was asked for, or what steps need beside them."""


class ProtocolError(HeadraceError):
    """A message cannot be executed; the step that it carries fails as a whole."""


class Occupied(HeadraceError):
    """The shard serves another router, which goes on."""


class Closed(HeadraceError):
    """The shard is about to end and takes nothing new."""


class ShortOfMemory(HeadraceError):
    """One of several ranks had no memory for a step. The others did not notice: it took part in every exchange."""


class LostDevice(HeadraceError):
    """The device does not compute any more for this process."""


class LostRank(HeadraceError):
    """Another rank of the model is gone, or was never there."""


def report(error: BaseException) -> int:
    """Print the process's closing line; returns its exit status."""
    print(f"error: {one_line(error)}", file=sys.stderr, flush=True)
    return 1


def one_line(error: BaseException) -> str:
    """What an operator reads about an error. One of ours says all of it; of any other the type says half."""
    text = str(error).strip()
    if isinstance(error, HeadraceError):
        return " ".join(text.split())
    return f"unexpected {type(error).__name__}: {first_line(error)}; --log-level debug shows where it happened"


def first_line(error: BaseException) -> str:
    """Of what a library says, which may be pages."""
    text = str(error).strip()
    return text.splitlines()[0] if text else "no further words"


def lacks_memory(error: BaseException) -> bool:
    """Whether all that was missing is memory, so that less of it, or the same later, may be found. Of a GPU's libraries
    too: after these errors it computes on. Without importing torch, which has a type for its own allocator's.
    """
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if (code := getattr(error, "error_code", None)) is not None:  # torch.AcceleratorError, whose text is longer
        return bool(code == _MEMORY_ALLOCATION)
    if isinstance(error, MemoryError | ShortOfMemory) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error)) is not None


def lacking(error: BaseException) -> str:
    """What an error of `lacks_memory` says of the memory that was missing: NCCL says it last."""
    lines = str(error).strip().splitlines()
    return next((line.strip() for line in lines if _NO_MEMORY.search(line)), first_line(error))


_MEMORY_ALLOCATION = 2
"""The number of CUDA's, and of HIP's, error."""

_NO_MEMORY = re.compile(
    r"out of memory"  # CUDA's and HIP's word, whoever passes it on: torch, Triton, NCCL
    r"|_ALLOC_FAILED|_ALLOCATION_FAILED"  # cuBLAS, cuDNN
    r"|Failed to (CUDA )?(host )?[cm]?alloc"  # NCCL
    r"|allocate memory"  # torch on a CPU, the C library
    r"|bad_alloc"  # C++
    r"|Storage size calculation overflowed",  # torch, of more bytes than can be counted
    re.IGNORECASE,
)
