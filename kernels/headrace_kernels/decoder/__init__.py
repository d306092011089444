"""A whole decoder-only transformer on the CPU: one call a step. Or a rank's slices of one. Numpy, no torch.

What a step computes, for tokens t of all rows, one after the other:

    x[t] = embedding[token_ids[t]]
    for each layer:
        q, k, v = qkv(norm(x)); q and k normalised a head where the model does that, and rotated by position
        k and v go to the cache
        x += output(attention(q, cache))                       `paged_attention` says which keys a query sees
        x += down(silu(gate(norm(x))) * up(norm(x)))
    logits[s] = head(norm(x[sampled[s]]))

norm is `rms_norm`. The residual stream x is float32. Inputs of linear layers, queries, keys, values and the weights of
keys are rounded to the model's type once each; products add up in float32 and results are not rounded before they are
used. With a cache in 8 bits keys and values are rounded to that (`kv_cache.py`) instead. `reference.py` is this in
plain numpy.

**Of several ranks** each has some heads, some columns of the feed-forward layer and some tokens of the vocabulary, and
gets its x by adding up what all ranks made: after the embedding, of which each has zeros for the others' tokens, and
after each attention and feed-forward layer. There one rank carries x, adding its own part to it, and the others have
their parts alone.

**The law**: a token's bits depend on the tokens before it in its row only. See the package's docstring.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.linear import PackedLinear


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. Columns are padded to whole panels of 16."""

    input_norm: NDArray[np.float32]  # [hidden_size]
    mlp_norm: NDArray[np.float32]  # [hidden_size]
    query_norm: NDArray[np.float32] | None  # [head_dim]
    key_norm: NDArray[np.float32] | None  # [head_dim]
    qkv: PackedLinear  # heads of queries, of keys, of values, each padded alone
    output: PackedLinear
    gate_up: PackedLinear  # a panel of gates, the same columns of up, and so on
    down: PackedLinear
    window: int | None  # positions a query sees, itself included
    rotary: bool  # whether positions are embedded


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """A model, or a rank's slices of one. `dtype` is that of linear layers and activations: native.FLOAT32 or
    native.BFLOAT16."""

    layers: Sequence[LayerWeights]
    embedding: NDArray  # [len(vocabulary), hidden_size] float32 or bfloat16
    norm: NDArray[np.float32]  # [hidden_size]
    head: PackedLinear  # of the tokens of `vocabulary`
    dtype: int
    hidden_size: int
    intermediate_size: int  # columns that are here
    num_heads: int  # heads that are here; 0: none, and no layer of attention
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    vocab_size: int  # of the whole model
    vocabulary: range  # token ids whose rows of embedding and head are here
    carries_residual: bool  # True for one rank alone, and for one of several
    eps: float


@dataclass(frozen=True, slots=True)
class KvLayer:
    """One layer's cache, of `kv_cache_shape`, contiguous: in the model's type, or int8."""

    keys: NDArray
    values: NDArray


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A flat batch, as `paged_attention` describes it, and what is wanted of it."""

    token_ids: NDArray[np.int64]  # [tokens]
    block_tables: NDArray[np.int32]  # [rows, max_blocks]
    query_starts: NDArray[np.int32]  # [rows + 1]
    context_lengths: NDArray[np.int32]  # [rows]
    sampled: NDArray[np.int64]  # [sampled] tokens that the head is computed for
    logits_wanted: NDArray[np.bool_]  # [sampled] whose logits are wanted, not only the largest


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """Of the sampled tokens."""

    best_ids: NDArray[np.int64]  # [sampled] the largest logit's, the lowest among equals
    best_logits: NDArray[np.float32]  # [sampled] its value; NaN if any is
    logits: NDArray[np.float32]  # [logits_wanted, logits that are here] in their order


from headrace_kernels.decoder.cpu import MOST_HEAD_DIM, MOST_WINDOWS, OPERATIONS, Decoder, Times  # noqa: E402  (it needs the definitions above)

__all__ = [
    "MOST_HEAD_DIM",
    "MOST_WINDOWS",
    "OPERATIONS",
    "Decoder",
    "DecoderWeights",
    "KvLayer",
    "LayerWeights",
    "StepInputs",
    "StepOutputs",
    "Times",
]
