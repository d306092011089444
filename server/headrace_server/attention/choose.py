"""Which attention a shard computes with: --attention-backend."""

from importlib.util import find_spec

import torch

from headrace_kernels.paged_attention import MOST_HEAD_DIM
from headrace_server.attention import fa3, flashinfer
from headrace_server.attention.interface import AttentionBackend, HeadCounts
from headrace_server.attention.paged import PagedAttention
from headrace_server.errors import ConfigError

INSTALL = {
    "triton": "`pip install triton`",
    "flashinfer": "`pip install flashinfer-python`",
    "fa3": "build flash_attn_3 from the folder hopper of flash-attention's sources",
}

MODULES = {"triton": "triton", "flashinfer": flashinfer.MODULE, "fa3": fa3.MODULE}
HOPPER = (9, 0)


def attention_backend(
    name: str,
    heads: HeadCounts,
    block_size: int,
    device: torch.device,
    dtype: torch.dtype,
    cache_dtype: torch.dtype | None = None,
    batch_invariant: bool = False,
) -> AttentionBackend:
    """The backend that --attention-backend names. Raises ConfigError for one that can't compute this, and says why.

    `batch_invariant`: a query's bits shall depend on its own sequence only, which are Triton's alone to promise.
    """
    flag = f"--attention-backend {name}"
    if batch_invariant and name == "auto":
        flag, name = "--batch-invariant", "triton"
    if device.type == "meta":
        # Kernels are compiled ahead. A library's are its own; those of ours that it goes with are among Triton's.
        name = "reference" if name == "reference" else "triton"
    if name == "auto":
        able = (other for other in ("fa3", "flashinfer") if why_not(other, heads, device, dtype, cache_dtype) is None)
        name = next(able, "auto")
    elif reason := why_not(name, heads, device, dtype, cache_dtype):
        raise ConfigError(f"{flag}: {reason}")
    match name:
        case "fa3":
            return fa3.FlashAttention3(heads, block_size, device)
        case "flashinfer":
            return flashinfer.FlashInfer(heads, block_size, device)
        case "triton":
            return PagedAttention(heads, block_size, device, "triton", batch_invariant)
        case "reference":
            return PagedAttention(heads, block_size, device, "reference")
        case _:
            return PagedAttention(heads, block_size, device)


def why_not(
    name: str, heads: HeadCounts, device: torch.device, dtype: torch.dtype, cache_dtype: torch.dtype | None = None
) -> str | None:
    """What is in the way of a backend, in words that follow its name; None if nothing is."""
    if name == "reference":
        return None
    if find_spec(MODULES[name]) is None:
        return f"not installed; {INSTALL[name]}, or leave the flag out"
    if name == "triton":
        if heads.head_dim > MOST_HEAD_DIM:
            return f"heads of {heads.head_dim} elements are more than {MOST_HEAD_DIM}; leave the flag out"
        return None if device.type != "cpu" or _interpreting() else "needs a GPU (or TRITON_INTERPRET=1, to look at it)"
    if device.type != "cuda":
        return "needs a GPU"
    if cache_dtype not in (None, dtype):
        return "cannot read an 8-bit KV cache here; take triton, or leave --kv-cache-dtype out"
    if dtype == torch.float32:
        return "needs --dtype bfloat16 or float16"
    if name == "fa3":
        if torch.cuda.get_device_capability(device) != HOPPER:
            return "needs a Hopper GPU (H100, H200)"
        return None if heads.head_dim <= fa3.MOST_HEAD_DIM else f"heads of {heads.head_dim} elements are too large"
    if heads.head_dim not in flashinfer.HEAD_DIMS:
        return f"heads of {heads.head_dim} elements are none of {', '.join(map(str, flashinfer.HEAD_DIMS))}"
    return None


def _interpreting() -> bool:
    from headrace_kernels.gpu.launch import interpreting

    return interpreting()
