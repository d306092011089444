"""The Llama family as the CPU's decoder wants it: which tensor of a checkpoint becomes which panels of which layer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.decoder import DecoderWeights, LayerWeights
from headrace_kernels.linear import PANEL_COLUMNS, PackedLinear, num_panels
from headrace_server.models.config import LayerConfig, ModelConfig
from headrace_server.models.names import EMBEDDING, FINAL_NORM, HEAD, LayerNames
from headrace_server.quantization.parts import LinearMaker, Part
from headrace_server.weights.arrays import ArrayCheckpoint
from headrace_server.weights.bfloat16 import to_bfloat16


def packed_weights(
    config: ModelConfig, checkpoint: ArrayCheckpoint, dtype: int, linears: LinearMaker
) -> DecoderWeights:
    """Everything that the checkpoint holds of the model. Raises WeightsError if the two do not belong together."""
    embedding = checkpoint.take(f"{EMBEDDING}.weight", config.vocab_size, config.hidden_size)
    reader = _Reader(config, checkpoint, dtype, linears)
    weights = DecoderWeights(
        layers=[reader.layer(LayerNames.of(index), layer) for index, layer in enumerate(config.layers)],
        # A copy: the file may be replaced while the shard runs.
        embedding=reader.rounded(embedding).copy(),
        norm=reader.norm(FINAL_NORM, config.hidden_size),
        head=reader.head(),
        dtype=dtype,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        rotary_dim=config.rope.dim,
        vocab_size=config.vocab_size,
        eps=config.rms_norm_eps,
    )
    checkpoint.finish()
    return weights


class _Reader:
    def __init__(self, config: ModelConfig, checkpoint: ArrayCheckpoint, dtype: int, linears: LinearMaker) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._bfloat16 = dtype == native.BFLOAT16
        self._linears = linears

    def layer(self, names: LayerNames, layer: LayerConfig) -> LayerWeights:
        config = self._config
        hidden, inner = config.hidden_size, config.intermediate_size
        query_size = config.num_heads * config.head_dim
        gate_up = [Part(names.gate, inner, 0, inner, 0, 2), Part(names.up, inner, 0, inner, 1, 2)]
        return LayerWeights(
            input_norm=self.norm(names.input_norm, hidden),
            mlp_norm=self.norm(names.mlp_norm, hidden),
            query_norm=self.norm(names.query_norm, config.head_dim) if config.qk_norm else None,
            key_norm=self.norm(names.key_norm, config.head_dim) if config.qk_norm else None,
            qkv=self._make(self._heads(names), hidden, config.qkv_bias),
            output=self._whole(names.output, hidden, query_size, config.output_bias),
            gate_up=self._make(gate_up, hidden, config.mlp_bias),
            down=self._whole(names.down, hidden, inner, config.mlp_bias),
            window=layer.sliding_window,
            rotary=layer.rotary,
        )

    def norm(self, name: str, size: int) -> NDArray[np.float32]:
        return self._checkpoint.take_float32(f"{name}.weight", size, rounded=self._bfloat16)

    def rounded(self, values: NDArray) -> NDArray:
        """To bfloat16 if the model computes in it; bfloat16 stays, for it is exact in float32 too."""
        return to_bfloat16(values) if self._bfloat16 and values.dtype == np.float32 else values

    def head(self) -> PackedLinear:
        config = self._config
        if config.tie_word_embeddings:
            self._checkpoint.ignore(f"{HEAD}.weight")  # some checkpoints carry the copy
        name = EMBEDDING if config.tie_word_embeddings else HEAD
        part = Part(name, config.vocab_size, 0, config.vocab_size, 0)
        return self._linears.make(self._checkpoint, [part], config.hidden_size, bias=False, head=True)

    def _heads(self, names: LayerNames) -> list[Part]:
        """Queries, keys, values; a head that is no whole number of panels is padded to one."""
        config, parts, panel = self._config, list[Part](), 0
        for name, heads in (
            (names.query, config.num_heads),
            (names.key, config.num_kv_heads),
            (names.value, config.num_kv_heads),
        ):
            height = heads * config.head_dim
            step = height if config.head_dim % PANEL_COLUMNS == 0 else config.head_dim
            for begin in range(0, height, step):
                parts.append(Part(name, height, begin, begin + step, panel))
                panel += num_panels(step)
        return parts

    def _whole(self, name: str, height: int, in_features: int, bias: bool) -> PackedLinear:
        return self._make([Part(name, height, 0, height, 0)], in_features, bias)

    def _make(self, parts: Sequence[Part], in_features: int, bias: bool) -> PackedLinear:
        return self._linears.make(self._checkpoint, parts, in_features, bias=bias)
