"""What a scale for each 32 elements is worth beside one for a whole column or row, when weights and activations of
linear layers are rounded to 8 bits: `integration-tests/bench/rounding.py MODEL_DIRECTORY`.

The model runs in float32 with transformers; only the rounding differs, so this says nothing of speed. Decision 14 has
what was concluded.
"""

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, log_softmax, pad

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.prose import TEXTS
from harness.reference import Reference

GROUP = 32
WHOLE = 0
"""Elements that share a scale: so many, or all of a row (of activations) or column (of weights)."""

VARIANTS = {
    "exact": None,
    "weights in groups, rows in groups (--quantize int8)": (GROUP, GROUP),
    "weights per channel, rows in groups": (WHOLE, GROUP),
    "weights per channel, rows whole": (WHOLE, WHOLE),
}


def rounded(x: Tensor, group: int) -> Tensor:
    """The last axis to 127 steps a side, nearest, `group` elements or all of it with a scale."""
    size = x.shape[-1]
    pieces = pad(x, (0, -size % group)).unflatten(-1, (-1, group)) if group else x.unsqueeze(-2)
    scale = pieces.abs().amax(-1, keepdim=True) / 127
    quants = (pieces / scale.clamp(min=1e-30)).round()
    return (quants * scale).flatten(-2)[..., :size]


@contextmanager
def rounding(model: nn.Module, groups: tuple[int, int] | None) -> Iterator[None]:
    """Linear layers round their weights and rows."""
    if groups is None:
        yield
        return
    of_weights, of_rows = groups
    weights = {id(m): rounded(m.weight.detach(), of_weights) for m in model.modules() if isinstance(m, nn.Linear)}

    def forward(self: nn.Linear, x: Tensor) -> Tensor:
        return linear(rounded(x, of_rows), weights[id(self)], self.bias)

    with patch.object(nn.Linear, "forward", forward):
        yield


@torch.inference_mode()
def logprobs(model: nn.Module, prompts: list[Tensor]) -> Tensor:
    """Of every token but each paragraph's first."""
    parts = []
    for ids in prompts:
        told = log_softmax(model(ids[None]).logits[0, :-1], dim=-1)
        parts.append(told.gather(1, ids[1:, None])[:, 0])
    return torch.cat(parts)


def main() -> None:
    reference = Reference(Path(sys.argv[1]))
    model = reference.model(torch.float32)
    prompts = [torch.tensor(reference.ids(text)) for text in TEXTS]
    print("| rounding | perplexity | mean shift of log-probabilities | within 0.1 |\n|---|---|---|---|")
    exact = None
    for name, groups in VARIANTS.items():
        with rounding(model, groups):
            told = logprobs(model, prompts)
        exact = told if exact is None else exact
        shift = (told - exact).abs()
        within = float((shift <= 0.1).float().mean())
        print(
            f"| {name} | {math.exp(-float(told.mean())):.3f} | {float(shift.mean()):.4f} | {within:.1%} |", flush=True
        )


if __name__ == "__main__":
    main()
