"""Which tokens occurred in the rows that penalise repetition, kept step by step."""

import numpy as np
import torch
from torch import Tensor

from headrace_server.step import Ints

FIRST_CAPACITY = 256  # tokens; doubled when a row outgrows it


class TokenHistory:
    """Token ids of each row in order, prompt then generated, in one matrix. Rows that don't penalise take no part."""

    def __init__(self, max_rows: int, device: torch.device) -> None:
        self._tokens = torch.zeros(max_rows, FIRST_CAPACITY, dtype=torch.int64, device=device)
        self._fresh = torch.zeros(max_rows, FIRST_CAPACITY, dtype=torch.bool, device=device)
        self._prompt_length = np.zeros(max_rows, np.int64)
        self._length = np.zeros(max_rows, np.int64)

    def start(self, row: int, token_ids: Ints, num_generated: int) -> None:
        """A row begins with these tokens, the last `num_generated` of them its answer so far."""
        length, prompt_length = len(token_ids), len(token_ids) - num_generated
        self._grow(length)
        self._tokens[row, :length] = torch.from_numpy(token_ids)
        self._fresh[row] = False
        _, first_seen = np.unique(token_ids[prompt_length:], return_index=True)
        self._fresh[row, torch.from_numpy(first_seen + prompt_length)] = True
        self._prompt_length[row], self._length[row] = prompt_length, length

    def append(self, rows: Ints, tokens: Tensor) -> None:
        """Each row generated one more token; tokens [rows] int64."""
        self._grow(int(self._length[rows].max()) + 1)
        before, generated, _ = self.of(rows)
        seen = ((before == tokens[:, None]) & generated).any(dim=1)
        where = (torch.from_numpy(rows), torch.from_numpy(self._length[rows]))
        self._tokens[where] = tokens
        self._fresh[where] = ~seen
        self._length[rows] += 1

    def of(self, rows: Ints) -> tuple[Tensor, Tensor, Tensor]:
        """(tokens, generated, fresh), each [rows, longest].

        generated: the token is one of the answer's. fresh: it is the first of its kind there. Past a row's end,
        tokens repeats its first token and the other two are false, so scattering into logits does no harm.
        """
        longest = int(self._length[rows].max())
        index = torch.from_numpy(rows)
        places = torch.arange(longest, device=self._tokens.device)
        ends = torch.from_numpy(self._length[rows])[:, None].to(places.device)
        starts = torch.from_numpy(self._prompt_length[rows])[:, None].to(places.device)
        inside = places < ends
        tokens = self._tokens[index, :longest]
        tokens = torch.where(inside, tokens, tokens[:, :1])
        return tokens, inside & (places >= starts), inside & self._fresh[index, :longest]

    def _grow(self, length: int) -> None:
        capacity = self._tokens.shape[1]
        if length <= capacity:
            return
        more = max(length, 2 * capacity) - capacity
        self._tokens = torch.nn.functional.pad(self._tokens, (0, more))
        self._fresh = torch.nn.functional.pad(self._fresh, (0, more))
