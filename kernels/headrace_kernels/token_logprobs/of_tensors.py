"""`token_logprobs` of torch tensors, wherever they are."""

import torch
from torch import Tensor

from headrace_kernels.backends import Backend, choose
from headrace_kernels.checks import FLOATS, expect, expect_dense
from headrace_kernels.token_logprobs import cpu


def token_logprobs(logits: Tensor, tokens: Tensor, *, backend: Backend | None = None) -> Tensor:
    """The log-probability of one token of each row.

    logits   [num_rows, vocab_size] of any float type, contiguous but for the first axis; only read
    tokens   [num_rows] int64 in [0, vocab_size)
    returns  [num_rows] float32; NaN where logits are NaN, +∞ or all −∞

        out[i] = logits[i, tokens[i]] - log(sum(exp(logits[i])))

    On a GPU the logits are read once and nothing of their size is written.
    """
    expect(logits, "logits", (None, None), FLOATS)
    expect_dense(logits, "logits")
    expect(tokens, "tokens", (len(logits),), torch.int64, logits)
    backend = choose(backend, logits, cpu=logits.dtype is torch.float32)
    if backend == "cpu":
        return torch.from_numpy(cpu.token_logprobs(logits.numpy(), tokens.numpy()))
    if backend == "triton":
        from headrace_kernels.token_logprobs import triton

        return triton.token_logprobs(logits, tokens)
    values = logits.double().log_softmax(dim=-1).gather(1, tokens[:, None])[:, 0]
    return values.float()
