"""Calls of the operations, as a model on a GPU makes them: what `make gpu-check` compares and measures.

An operation that has Triton kernels has a `cases.py` with a function `cases(device, tiny)`. On device "meta", inside
`gpu.ahead.compiling`, running one compiles its kernels; with `tiny` one runs in the interpreter.
"""

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Outputs = Tensor | Sequence[Tensor]


@dataclass(frozen=True)
class Case:
    """One call and what it should give."""

    name: str  # "operation: what of it"
    run: Callable[[], Outputs]
    reference: Callable[[], Outputs]
    bytes: int  # that must be read and written, each once
    flops: int
    tolerance: float  # of a difference, as a share of the largest magnitude of the reference


OPERATIONS = (
    "quantize_rows",
    "rms_norm",
    "silu_and_mul",
    "rotary_embedding",
    "rotate_and_store_kv",
    "paged_attention",
    "gather_embeddings",
    "gather_rows",
    "copy_blocks",
    "gumbel_noise",
    "sample_tokens",
    "token_logprobs",
    "invariant_linear",
    "scaled_matmul",
    "int4_matmul",
)
"""Folders of headrace_kernels that have cases."""


def all_cases(device: torch.device | str, tiny: bool = False) -> Iterator[Case]:
    """Those of all operations, made one at a time: their tensors are large."""
    for operation in OPERATIONS:
        yield from importlib.import_module(f"headrace_kernels.{operation}.cases").cases(torch.device(device), tiny)


def error(case: Case) -> float:
    """The largest difference from the reference, as a share of the reference's largest magnitude; NaN where NaN is."""
    worst = 0.0
    for got, expected in zip(_several(case.run()), _several(case.reference()), strict=True):
        if expected.numel():
            largest = expected.double().abs().max().clamp(min=1e-30)
            worst = max(worst, float((got.double() - expected.double()).abs().max() / largest))
    return worst


def nbytes(*tensors: Tensor) -> int:
    """Bytes of all elements."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def random(
    *shape: int, device: torch.device, dtype: torch.dtype = torch.float32, scale: float = 1.0, seed: int = 1
) -> Tensor:
    """Normal numbers; on "meta" only their shape."""
    generator = None if device.type == "meta" else torch.Generator(device).manual_seed(seed)
    return (torch.randn(*shape, device=device, generator=generator) * scale).to(dtype)


def _several(outputs: Outputs) -> Sequence[Tensor]:
    return (outputs,) if isinstance(outputs, Tensor) else outputs
