"""Calls the C++ `token_logprobs`."""

import numpy as np

from headrace_kernels.native import INT, INT32, POINTER, Kernel, num_threads
from headrace_kernels.sample_tokens.columns import Floats, Ints

_token_logprobs = Kernel("token_logprobs", POINTER, INT, INT, INT, POINTER, POINTER, INT32)


def token_logprobs(logits: Floats, tokens: Ints) -> Floats:
    """See `headrace_kernels.token_logprobs`; the arguments are checked."""
    out = np.empty(len(tokens), np.float32)
    pointers = (logits.ctypes.data, tokens.ctypes.data, out.ctypes.data)
    _token_logprobs(pointers[0], logits.strides[0] // 4, *logits.shape, *pointers[1:], num_threads())
    return out
