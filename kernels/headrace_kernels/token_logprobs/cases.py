"""Prompt log-probabilities: the rows of one slice of the language-model head."""

from collections.abc import Iterator

import torch

from headrace_kernels.gpu.cases import Case, nbytes, random
from headrace_kernels.token_logprobs.of_tensors import token_logprobs


def cases(device: torch.device, tiny: bool) -> Iterator[Case]:
    """Logits in float32, as the head gives them."""
    rows, vocab_size = (3, 5000) if tiny else (128, 128256)
    logits = random(rows, vocab_size, device=device, scale=3.0)
    tokens = torch.arange(rows, device=device) * 37
    yield Case(
        f"token_logprobs: {rows} x {vocab_size}",
        lambda: token_logprobs(logits, tokens, backend="triton"),
        lambda: token_logprobs(logits, tokens, backend="reference"),
        bytes=nbytes(logits),
        flops=0,
        tolerance=1e-6,
    )
