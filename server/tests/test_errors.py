"""What an operator reads about an error."""

import errno
import mmap
from collections.abc import Callable

import numpy as np
import pytest
import torch
from triton.runtime.errors import OutOfResources

from headrace_kernels.memory import huge_zeros
from headrace_server.errors import CapacityError, ConfigError, ShortOfMemory, lacking, lacks_memory, one_line


def test_an_error_of_ours_is_its_own_sentence() -> None:
    assert one_line(ConfigError("config.json: 'x' is\n  missing")) == "config.json: 'x' is missing"


def test_any_other_error_is_one_line_with_its_type_and_where_to_learn_more() -> None:
    line = one_line(KeyError("rope\nlong text"))
    assert line.startswith("unexpected KeyError: 'rope")
    assert line.endswith("; --log-level debug shows where it happened")
    assert "\n" not in line
    assert one_line(ValueError()).startswith("unexpected ValueError: no further words")


SHORT = [
    (MemoryError(), "no further words"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "[Errno 12] Cannot allocate memory"),
    (ShortOfMemory("CUDA out of memory"), "CUDA out of memory"),
    (torch.OutOfMemoryError("16 tokens do not fit\nand advice"), "16 tokens do not fit"),
    (RuntimeError("CUDA error: out of memory\nand advice"), "CUDA error: out of memory"),
    (RuntimeError("HIP error: out of memory"), "HIP error: out of memory"),
    (RuntimeError("CUDA driver error: out of memory"), "CUDA driver error: out of memory"),
    (RuntimeError("Triton Error [CUDA]: out of memory"), "Triton Error [CUDA]: out of memory"),
    (
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    (
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ),
    (RuntimeError("std::bad_alloc"), "std::bad_alloc"),
    (
        RuntimeError("NCCL error in: a.cpp:1, unhandled system error\nLast error:\nFailed to malloc 4096 bytes"),
        "Failed to malloc 4096 bytes",
    ),
]


@pytest.mark.parametrize(("error", "words"), SHORT, ids=[words for _, words in SHORT])
def test_a_lack_of_memory_is_known_by_whatever_a_library_says(error: Exception, words: str) -> None:
    assert lacks_memory(error)
    assert lacking(error) == words


@pytest.mark.parametrize(
    "ask",
    [
        lambda: torch.empty(10**15),
        lambda: torch.empty(10**12, 10**12),
        lambda: np.empty(10**15),
        lambda: mmap.mmap(-1, 10**15),
        lambda: huge_zeros((10**15,), np.uint8),
        lambda: huge_zeros((10**12, 10**12), np.uint8),
    ],
    ids=["torch", "torch, uncountable", "numpy", "the system", "huge pages", "huge pages, uncountable"],
)
def test_so_it_is_where_something_really_asks_for_too_much(ask: Callable[[], object]) -> None:
    with pytest.raises((MemoryError, OSError, RuntimeError)) as caught:
        ask()
    assert lacks_memory(caught.value)


def test_the_system_refuses_with_the_bytes_that_were_asked_for() -> None:
    with pytest.raises(MemoryError, match=f"the system has no {10**15} bytes"):
        huge_zeros((10**15,), np.uint8)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:4711"),
        RuntimeError("value cannot be converted to type int32_t without overflow"),
        OutOfResources(300_000, 232_448, "shared memory"),
        FileNotFoundError(errno.ENOENT, "No such file"),
        ValueError("out of memory"),
        CapacityError("there is no memory for a KV pool"),
    ],
    ids=lambda error: str(error)[:40],
)
def test_nothing_else_is_taken_for_one(error: Exception) -> None:
    """What memory was not missing for would fail again, or a device computes no more."""
    assert not lacks_memory(error)


@pytest.mark.parametrize(("code", "lacks"), [(2, True), (700, False)], ids=["memory allocation", "illegal address"])
def test_an_accelerators_error_has_a_number(code: int, lacks: bool) -> None:
    """Its text goes on with what may have caused it, and may name anything."""
    error = RuntimeError("CUDA error: see out of memory")
    error.error_code = code  # type: ignore[attr-defined]
    assert lacks_memory(error) is lacks
