"""The Llama family: Llama, Mistral, Qwen2, Qwen3, SmolLM2, SmolLM3."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headrace_kernels.ops import HeadNorms
from headrace_server.attention.interface import AttentionBackend, AttentionBatch, LayerAttention, LayerCache
from headrace_server.distributed.collective import Collective, Exchange, Kind
from headrace_server.errors import WeightsError
from headrace_server.layers.attention import Attention, NoAttention
from headrace_server.layers.embedding import Embedding, LanguageModelHead
from headrace_server.layers.linear import LinearFactory
from headrace_server.layers.mlp import GatedMlp
from headrace_server.layers.norm import RmsNorm
from headrace_server.layers.rotary import RotaryEmbedding
from headrace_server.models.config import LayerConfig, ModelConfig
from headrace_server.models.names import EMBEDDING, FINAL_NORM, HEAD, LayerNames
from headrace_server.models.split import Split
from headrace_server.quantization.method import QuantizationMethod
from headrace_server.weights.safetensors import Checkpoint
from headrace_server.weights.slice import Slice


class DecoderLayer:
    """x + attention(norm(x)), then the same with the feed-forward layer."""

    def __init__(
        self, input_norm: RmsNorm, attention: Attention | NoAttention, mlp_norm: RmsNorm, mlp: GatedMlp
    ) -> None:
        self._input_norm = input_norm
        self._attention = attention
        self._mlp_norm = mlp_norm
        self._mlp = mlp

    def __call__(self, x: Tensor, residual: Tensor, cache: LayerCache, batch: AttentionBatch) -> tuple[Tensor, Tensor]:
        """x is what the layer before added; residual the stream before that addition."""
        rows, residual = self._input_norm.add_for(self._attention.rows_dtype, x, residual)
        x = self._attention(rows, cache, batch)
        rows, residual = self._mlp_norm.add_for(self._mlp.rows_dtype, x, residual)
        return self._mlp(rows), residual


class Llama:
    """A decoder-only transformer, or one rank's part of it.

    The residual stream is float32 whatever the weights are: one small tensor more.
    """

    def __init__(
        self,
        config: ModelConfig,
        split: Split,
        checkpoint: Checkpoint,
        method: QuantizationMethod,
        backend: AttentionBackend,
        device: torch.device,
        collective: Collective,
    ) -> None:
        self.config = config
        self.split = split
        self.collective = collective
        self._linear = LinearFactory(checkpoint, method, collective)
        self._rotary = RotaryEmbedding(config.rope, device)
        vocabulary = Slice.of(config.vocab_size, split.vocabulary)
        embedding = checkpoint.take(f"{EMBEDDING}.weight", vocabulary, config.hidden_size)
        self._embedding = Embedding(embedding, split.vocabulary, config.vocab_size, collective)
        self._layers = [
            self._layer(LayerNames.of(index), layer, checkpoint, backend) for index, layer in enumerate(config.layers)
        ]
        self._norm = self._norm_layer(FINAL_NORM, checkpoint)
        self._head = self._language_model_head(checkpoint, vocabulary)
        checkpoint.finish()

    def serve(self, positions: int) -> None:
        """Prepare for sequences of so many tokens. Before the first forward pass."""
        self._rotary.serve(positions)

    def __call__(
        self, tokens: Tensor, last_tokens: Tensor, caches: Sequence[LayerCache], batch: AttentionBatch
    ) -> Tensor:
        """tokens [tokens] int64: an id, or -1 - row for what that row sampled last: last_tokens [rows] int64 → hidden
        [tokens, hidden_size], normalised, ready for `logits`."""
        x = self._embedding(tokens, last_tokens)
        residual = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for layer, cache in zip(self._layers, caches, strict=True):
            x, residual = layer(x, residual, cache, batch)
        return self._norm.add(x, residual)[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [rows, hidden_size] → [rows, vocab_size] float32 on rank 0, [rows, 0] elsewhere. All take part."""
        return self._head(hidden)

    def exchanges(self, tokens: int, logits: Sequence[int]) -> list[Exchange]:
        """What ranks exchange in a forward pass over so many tokens, and then for logits of so many rows, time after
        time."""
        dtype = self._embedding.weight.dtype
        summed = Exchange(Kind.SUM, (tokens, self.config.hidden_size), dtype)
        widest = self.split.vocabulary_widths[0]
        gathered = [Exchange(Kind.GATHER, (rows, widest), dtype) for rows in logits]
        return [summed] * (1 + 2 * len(self._layers)) + gathered

    def _layer(
        self, names: LayerNames, layer: LayerConfig, checkpoint: Checkpoint, backend: AttentionBackend
    ) -> DecoderLayer:
        return DecoderLayer(
            self._norm_layer(names.input_norm, checkpoint),
            self._attention(names, layer, checkpoint, backend),
            self._norm_layer(names.mlp_norm, checkpoint),
            self._mlp(names),
        )

    def _attention(
        self, names: LayerNames, layer: LayerConfig, checkpoint: Checkpoint, backend: AttentionBackend
    ) -> Attention | NoAttention:
        config, split = self.config, self.split
        norms = self._head_norms(names, checkpoint)
        k_scale, v_scale = (_cache_scale(checkpoint, named) for named in (names.key_scale, names.value_scale))
        if not split.has_attention:
            checkpoint.ignore_modules(names.query, names.key, names.value, names.output)
            return NoAttention(self.collective)
        query = Slice.of(config.num_heads * config.head_dim, split.query_heads, config.head_dim)
        key = Slice.of(config.num_kv_heads * config.head_dim, split.kv_heads, config.head_dim)
        return Attention(
            qkv=self._linear.column_parallel(
                [names.query, names.key, names.value], [query, key, key], config.hidden_size, config.qkv_bias
            ),
            output=self._linear.row_parallel(names.output, config.hidden_size, query, config.output_bias),
            backend=backend,
            layer=LayerAttention(
                len(split.query_heads), config.head_dim**-0.5, layer.sliding_window, norms, k_scale, v_scale
            ),
            rotary=self._rotary if layer.rotary else None,
        )

    def _mlp(self, names: LayerNames) -> GatedMlp:
        config = self.config
        inner = Slice.of(config.intermediate_size, self.split.inner)
        gate_up = self._linear.column_parallel(
            [names.gate, names.up], [inner, inner], config.hidden_size, config.mlp_bias
        )
        return GatedMlp(gate_up, self._linear.row_parallel(names.down, config.hidden_size, inner, config.mlp_bias))

    def _norm_layer(self, name: str, checkpoint: Checkpoint) -> RmsNorm:
        return RmsNorm(checkpoint.take(f"{name}.weight", self.config.hidden_size), self.config.rms_norm_eps)

    def _head_norms(self, names: LayerNames, checkpoint: Checkpoint) -> HeadNorms | None:
        config = self.config
        if not config.qk_norm:
            return None
        query, key = (checkpoint.take(f"{name}.weight", config.head_dim) for name in (names.query_norm, names.key_norm))
        return HeadNorms(query, key, config.rms_norm_eps)

    def _language_model_head(self, checkpoint: Checkpoint, vocabulary: Slice) -> LanguageModelHead:
        weight = self._embedding.weight
        if self.config.tie_word_embeddings:
            checkpoint.ignore(f"{HEAD}.weight")  # some checkpoints carry the copy
        else:
            weight = checkpoint.take(f"{HEAD}.weight", vocabulary, self.config.hidden_size)
        return LanguageModelHead(self._linear.of_weight(weight), self.split.vocabulary_widths, self.collective)


def _cache_scale(checkpoint: Checkpoint, names: Sequence[str]) -> float:
    """What the checkpoint says under one of these names; 1 if nothing."""
    for name in names:
        checkpoint.ignore(name)
    found = next(filter(checkpoint.has, names), None)
    if found is None:
        return 1.0
    scale = float(checkpoint.take_unchanged(found, *checkpoint.shape_like(found, ())))
    if not 0 < scale < float("inf"):
        raise WeightsError(f"tensor '{found}' is {scale}; a scale must be above 0; fetch the checkpoint again")
    return scale
