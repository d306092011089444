"""Log-probabilities of prompt tokens, for the chunks whose rows asked.

The logits at position p tell of token p + 1, which may come with the next chunk: that one value waits in the row.
The head runs over SLICE positions at a time, so its logits take 128 rows of memory however long the prompt is.
"""

import numpy as np
import torch
from torch import Tensor

from headrace_server.batch import StepRows
from headrace_server.models.llama import Llama
from headrace_server.rows import Rows
from headrace_server.step import Floats, Ints

SLICE = 128  # rows of logits


def prompt_logprobs(model: Llama, hidden: Tensor, laid_out: StepRows, rows: Rows) -> dict[int, Floats]:
    """Row → one value per position of its chunk, NaN where nothing comes before. hidden [tokens, hidden_size]."""
    chunks = laid_out.rows[: laid_out.num_chunks]
    asked = np.flatnonzero(rows.sampling.prompt_logprobs[chunks]).tolist()
    ends = np.cumsum(laid_out.num_tokens)
    values = {}
    for place in asked:
        row, start, count = (int(column[place]) for column in (laid_out.rows, laid_out.starts, laid_out.num_tokens))
        following = rows.tokens[row][start + 1 : start + count + 1]
        told = _of_tokens(model, hidden[int(ends[place]) - count :], following)
        values[row] = np.concatenate(([rows.next_logprob[row]], told[: count - 1])).astype(np.float32)
        rows.next_logprob[row] = told[count - 1] if len(told) == count else np.nan
    return values


def _of_tokens(model: Llama, hidden: Tensor, tokens: Ints) -> Floats:
    """[len(tokens)] log-probability of tokens[i] given hidden[i]."""
    parts = [np.empty(0, np.float32)]
    for start in range(0, len(tokens), SLICE):
        wanted = torch.from_numpy(tokens[start : start + SLICE]).to(hidden.device)
        logprobs = model.logits(hidden[start : start + len(wanted)]).log_softmax(dim=-1)
        parts.append(logprobs.gather(1, wanted[:, None])[:, 0].cpu().numpy())
    return np.concatenate(parts)
