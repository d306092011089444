"""The Llama family as the CPU's decoder wants it: which tensor of a checkpoint, or which slice of it, becomes which
panels of which layer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.decoder import DecoderWeights, LayerWeights
from headrace_kernels.linear import DENSE, PANEL_COLUMNS, PackedLinear, num_panels
from headrace_server.models.config import LayerConfig, ModelConfig
from headrace_server.models.names import EMBEDDING, FINAL_NORM, HEAD, LayerNames
from headrace_server.models.split import Split
from headrace_server.quantization.parts import LinearMaker, Part
from headrace_server.weights.arrays import ArrayCheckpoint
from headrace_server.weights.bfloat16 import to_bfloat16
from headrace_server.weights.slice import Slice

ABSENT = PackedLinear(np.empty(0, np.uint8), 0, 0, DENSE, None)
"""A layer of attention on a rank that has no heads."""


def packed_weights(
    config: ModelConfig, split: Split, checkpoint: ArrayCheckpoint, dtype: int, linears: LinearMaker
) -> DecoderWeights:
    """Everything that the checkpoint holds of this rank's part of the model. Raises WeightsError if the two do not
    belong together, and ConfigError if what is stored can't be cut so."""
    vocabulary = Slice.of(config.vocab_size, split.vocabulary)
    embedding = checkpoint.take(f"{EMBEDDING}.weight", vocabulary, config.hidden_size)
    reader = _Reader(config, split, checkpoint, dtype, linears)
    weights = DecoderWeights(
        layers=[reader.layer(LayerNames.of(index), layer) for index, layer in enumerate(config.layers)],
        # A copy: the file may be replaced while the shard runs.
        embedding=reader.rounded(embedding).copy(),
        norm=reader.norm(FINAL_NORM, config.hidden_size),
        head=reader.head(vocabulary),
        dtype=dtype,
        hidden_size=config.hidden_size,
        intermediate_size=len(split.inner),
        num_heads=len(split.query_heads),
        num_kv_heads=len(split.kv_heads),
        head_dim=config.head_dim,
        rotary_dim=config.rope.dim,
        vocab_size=config.vocab_size,
        vocabulary=split.vocabulary,
        carries_residual=split.rank == 0,
        eps=config.rms_norm_eps,
    )
    checkpoint.finish()
    return weights


class _Reader:
    def __init__(
        self, config: ModelConfig, split: Split, checkpoint: ArrayCheckpoint, dtype: int, linears: LinearMaker
    ) -> None:
        self._config = config
        self._split = split
        self._checkpoint = checkpoint
        self._bfloat16 = dtype == native.BFLOAT16
        self._linears = linears
        self._hidden = Slice.whole(config.hidden_size)

    def layer(self, names: LayerNames, layer: LayerConfig) -> LayerWeights:
        config = self._config
        inner = Slice.of(config.intermediate_size, self._split.inner)
        for scale in (*names.key_scale, *names.value_scale):
            self._checkpoint.ignore(scale)  # of a cache in float8, which a CPU has none of
        gate_up = [Part(names.gate, inner, 0, 2), Part(names.up, inner, 1, 2)]
        return LayerWeights(
            input_norm=self.norm(names.input_norm, config.hidden_size),
            mlp_norm=self.norm(names.mlp_norm, config.hidden_size),
            query_norm=self.norm(names.query_norm, config.head_dim) if config.qk_norm else None,
            key_norm=self.norm(names.key_norm, config.head_dim) if config.qk_norm else None,
            qkv=self._qkv(names),
            output=self._output(names),
            gate_up=self._make(gate_up, self._hidden, config.mlp_bias),
            down=self._added_up(names.down, inner, config.mlp_bias),
            window=layer.sliding_window,
            rotary=layer.rotary,
        )

    def norm(self, name: str, size: int) -> NDArray[np.float32]:
        return self._checkpoint.take_float32(f"{name}.weight", size, rounded=self._bfloat16)

    def rounded(self, values: NDArray) -> NDArray:
        """To bfloat16 if the model computes in it; bfloat16 stays, for it is exact in float32 too."""
        return to_bfloat16(values) if self._bfloat16 and values.dtype == np.float32 else values

    def head(self, vocabulary: Slice) -> PackedLinear:
        config = self._config
        if config.tie_word_embeddings:
            self._checkpoint.ignore(f"{HEAD}.weight")  # some checkpoints carry the copy
        name = EMBEDDING if config.tie_word_embeddings else HEAD
        return self._linears.make(self._checkpoint, [Part(name, vocabulary, 0)], self._hidden, bias=False, head=True)

    def _qkv(self, names: LayerNames) -> PackedLinear:
        if not self._split.has_attention:
            self._checkpoint.ignore_modules(names.query, names.key, names.value)
            return ABSENT
        return self._make(self._heads(names), self._hidden, self._config.qkv_bias)

    def _output(self, names: LayerNames) -> PackedLinear:
        config = self._config
        if not self._split.has_attention:
            self._checkpoint.ignore_modules(names.output)
            return ABSENT
        heads = Slice.of(config.num_heads * config.head_dim, self._split.query_heads, config.head_dim)
        return self._added_up(names.output, heads, config.output_bias)

    def _heads(self, names: LayerNames) -> list[Part]:
        """Queries, keys, values; a head that is no whole number of panels is padded to one."""
        config, split, parts, panel = self._config, self._split, list[Part](), 0
        for name, heads, held in (
            (names.query, config.num_heads, split.query_heads),
            (names.key, config.num_kv_heads, split.kv_heads),
            (names.value, config.num_kv_heads, split.kv_heads),
        ):
            together = len(held) if config.head_dim % PANEL_COLUMNS == 0 else 1
            for first in range(held.start, held.stop, together):
                rows = Slice.of(heads * config.head_dim, range(first, first + together), config.head_dim)
                parts.append(Part(name, rows, panel))
                panel += num_panels(len(rows))
        return parts

    def _added_up(self, name: str, inputs: Slice, bias: bool) -> PackedLinear:
        """A layer whose results all ranks add up: one of them adds the bias."""
        if bias and self._split.rank > 0:
            self._checkpoint.ignore(f"{name}.bias")
            bias = False
        return self._make([Part(name, self._hidden, 0)], inputs, bias)

    def _make(self, parts: Sequence[Part], inputs: Slice, bias: bool) -> PackedLinear:
        return self._linears.make(self._checkpoint, parts, inputs, bias=bias)
