"""The definition of `rotate_and_store_kv`: the operations that it puts together, one after the other."""

from typing import TYPE_CHECKING

from torch import Tensor

from headrace_kernels.backends import Backend
from headrace_kernels.paged_attention.batch import places
from headrace_kernels.rms_norm import rms_norm
from headrace_kernels.rotary_embedding import rotary_embedding
from headrace_kernels.store_kv import store_kv

if TYPE_CHECKING:
    from headrace_kernels.rotate_and_store_kv import HeadNorms


def rotate_and_store_kv(
    qkv: Tensor,
    num_heads: int,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lengths: Tensor,
    norms: "HeadNorms | None",
    cos_sin: Tensor | None,
    k_scale: float,
    v_scale: float,
    panels: bool | None,
    backend: Backend,
) -> Tensor:
    """See `headrace_kernels.rotate_and_store_kv`; `backend` does each of them."""
    num_kv_heads = k_cache.shape[1]
    heads = qkv.view(qkv.shape[0], num_heads + 2 * num_kv_heads, -1)
    query, key, value = heads.split_with_sizes([num_heads, num_kv_heads, num_kv_heads], dim=1)
    if norms is not None:
        query = rms_norm(query, norms.query, norms.eps, backend=backend)
        key = rms_norm(key, norms.key, norms.eps, backend=backend)
    if cos_sin is not None:
        rotary_embedding(query, key, cos_sin, places(query_starts, context_lengths)[1], backend=backend)
    store_kv(
        key,
        value,
        k_cache,
        v_cache,
        block_tables,
        query_starts,
        context_lengths,
        k_scale=k_scale,
        v_scale=v_scale,
        panels=panels,
        backend=backend,
    )
    return query
