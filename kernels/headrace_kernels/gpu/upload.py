"""Small arrays that a step needs on the device, in one copy that nobody waits for."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

ALIGNED = 4  # words, 16 bytes: Triton compiles anew for a pointer that is not a multiple of it


def upload(arrays: Sequence[np.ndarray], device: torch.device) -> list[Tensor]:
    """Each array of whole numbers as a flat int32 tensor; the numbers fit. float32 goes as its bits: `bits_of`.

    On a GPU through pinned memory, which torch does not use again before the copy is done.
    """
    starts, size = sections([array.size for array in arrays])
    words = np.zeros(size, np.int32)
    for start, array in zip(starts, arrays, strict=True):
        words[start : start + array.size] = array.reshape(-1)
    on_host = torch.from_numpy(words)
    if device.type == "cuda":
        on_host = on_host.pin_memory()
    there = on_host.to(device, non_blocking=True)
    return [there[start : start + array.size] for start, array in zip(starts, arrays, strict=True)]


def sections(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each of some arrays begins in a buffer that holds them all, aligned; and the buffer's size. In words."""
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // ALIGNED) * ALIGNED
    return starts, end


def bits_of(values: np.ndarray) -> np.ndarray:
    """float32 or int64 seen as int32 words."""
    return np.ascontiguousarray(values).view(np.int32)
