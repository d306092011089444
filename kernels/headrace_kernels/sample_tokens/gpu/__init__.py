"""`sample_tokens` on a GPU: logits and results stay on the device, and nothing waits for it."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_kernels.checks import FLOATS, expect, expect_dense
from headrace_kernels.errors import ArgumentError
from headrace_kernels.sample_tokens.checks import check_per_row
from headrace_kernels.sample_tokens.columns import Columns, Ints
from headrace_kernels.sample_tokens.gpu import triton
from headrace_kernels.sample_tokens.gpu.device_columns import DeviceColumns
from headrace_kernels.sample_tokens.gpu.plan import plan_of
from headrace_kernels.sample_tokens.gpu.samples import DeviceSamples

__all__ = ["DeviceColumns", "DeviceSamples", "sample_on_gpu"]


def sample_on_gpu(
    logits: Tensor,
    rows: Ints,
    indices: Ints,
    columns: Columns,
    there: DeviceColumns,
    *,
    masks: Tensor | None = None,
    mask_at: Ints | None = None,
    last_token: Tensor | None = None,
    kept: Tensor | None = None,
) -> DeviceSamples:
    """Choose one token a row, by the formulas of `headrace_kernels.sample_tokens`.

    logits   [places, vocab_size] of any float type, contiguous but for the first axis; only read
    rows     [places] int64, on the host: each one's row. One that penalises may stand there once only
    indices  [places] int64, on the host: index of the new token among the row's generated ones; below 2^31
    columns  the host's parameters, of which only is read what the rows need: which kernels to launch
    there    the device's copy, of which `put` has taken over these rows; their counts go on
    masks    [masks, ceil(vocab_size / 32)] int32, on the device: what a grammar allows. Unless bit t % 32 of word
             t / 32 is 1, the logit of token t becomes −∞, after bias and penalties
    mask_at  [places] int64, on the host: each one's mask, or −1; goes with `masks`
    last_token  [at least all rows] int64, or None: gets each row's token, the next step's input
    kept     [places, vocab_size] int8, zeros, or None: gets 1, for rows with filters, where these left the token

    The tokens are those that C++ gives for the same logits: edits, quotients, noise and the masses by which filters cut
    have the same bits. Log-probabilities differ by rounding.

    Cost: logits are read once by several programs a row (`scan`), which compute the noise of rows without filters as
    well, 80 instructions a token; rows with an edit are copied. Rows with filters are then one program's each: beside
    the largest of every 64 logits, it reads those groups in which something can be, once for each of the 31 halvings
    of a cut. Where that is most of the vocabulary, because logits are nearly flat or a share is nearly 1, a row takes
    as long as 32 reads of it from the cache by one multiprocessor. Rows that report are read once more.
    """
    expect(logits, "logits", (None, None), FLOATS)
    expect_dense(logits, "logits")
    num_places, vocab_size = logits.shape
    check_per_row("rows", rows, num_places)
    check_per_row("indices", indices, num_places)
    if vocab_size != there.vocab_size:
        raise ArgumentError(f"logits: expected {there.vocab_size} columns, got {vocab_size}")
    if masks is not None and mask_at is not None:
        expect(masks, "masks", (None, -(-vocab_size // 32)), torch.int32, logits)
        check_per_row("mask_at", mask_at, num_places)
    elif masks is not None or mask_at is not None:
        raise ArgumentError("mask_at: expected with masks, and only with them")
    if last_token is not None:
        expect(last_token, "last_token", (None,), torch.int64, logits)
    if kept is not None:
        expect(kept, "kept", logits.shape, torch.int8, logits)
    masked: NDArray[np.bool_] | None = None if mask_at is None else mask_at >= 0
    plan = plan_of(rows, columns, vocab_size, masked)
    at = np.full(num_places, -1, np.int64) if mask_at is None else mask_at
    return triton.sample_tokens(logits, rows, indices, there, plan, masks, at, last_token, kept)
