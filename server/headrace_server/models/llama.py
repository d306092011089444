"""The Llama family: Llama, Mistral, Qwen2, Qwen3, SmolLM2, SmolLM3."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headrace_server.attention.paged import AttentionBatch, LayerCache, PagedAttention
from headrace_server.layers.attention import Attention
from headrace_server.layers.embedding import Embedding
from headrace_server.layers.linear import LinearFactory
from headrace_server.layers.mlp import GatedMlp
from headrace_server.layers.norm import RmsNorm
from headrace_server.layers.rotary import RotaryEmbedding
from headrace_server.models.config import LayerConfig, ModelConfig
from headrace_server.quantization.method import LinearLayer, QuantizationMethod
from headrace_server.weights.safetensors import Checkpoint


class DecoderLayer:
    """x + attention(norm(x)), then the same with the feed-forward layer."""

    def __init__(self, input_norm: RmsNorm, attention: Attention, mlp_norm: RmsNorm, mlp: GatedMlp) -> None:
        self._input_norm = input_norm
        self._attention = attention
        self._mlp_norm = mlp_norm
        self._mlp = mlp

    def __call__(
        self, x: Tensor, residual: Tensor, positions: Tensor, cache: LayerCache, batch: AttentionBatch
    ) -> tuple[Tensor, Tensor]:
        """x is what the layer before added; residual the stream before that addition."""
        x, residual = self._input_norm.add(x, residual)
        x = self._attention(x, positions, cache, batch)
        x, residual = self._mlp_norm.add(x, residual)
        return self._mlp(x), residual


class Llama:
    """A decoder-only transformer. The residual stream is float32 whatever the weights are: one small tensor more."""

    def __init__(
        self,
        config: ModelConfig,
        checkpoint: Checkpoint,
        backend: PagedAttention,
        device: torch.device,
        quantization: QuantizationMethod,
    ) -> None:
        self.config = config
        self._linear = LinearFactory(checkpoint, quantization)
        self._rotary = RotaryEmbedding(config.rope, device)
        self._embedding = Embedding(checkpoint.take("model.embed_tokens.weight", config.vocab_size, config.hidden_size))
        self._layers = [
            self._layer(f"model.layers.{index}", layer, checkpoint, backend)
            for index, layer in enumerate(config.layers)
        ]
        self._norm = self._norm_layer("model.norm", checkpoint)
        self._head = self._language_model_head(checkpoint)
        checkpoint.finish()

    def serve(self, positions: int) -> None:
        """Prepare for sequences of so many tokens. Before the first forward pass."""
        self._rotary.serve(positions)

    def __call__(
        self, token_ids: Tensor, positions: Tensor, caches: Sequence[LayerCache], batch: AttentionBatch
    ) -> Tensor:
        """token_ids, positions [tokens] int64 → hidden [tokens, hidden_size], normalised, ready for `logits`."""
        x = self._embedding(token_ids)
        residual = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for layer, cache in zip(self._layers, caches, strict=True):
            x, residual = layer(x, residual, positions, cache, batch)
        return self._norm.add(x, residual)[0]

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [rows, hidden_size] → [rows, vocab_size] float32."""
        return self._head(hidden)

    def _layer(self, name: str, layer: LayerConfig, checkpoint: Checkpoint, backend: PagedAttention) -> DecoderLayer:
        return DecoderLayer(
            self._norm_layer(f"{name}.input_layernorm", checkpoint),
            self._attention(f"{name}.self_attn", layer, checkpoint, backend),
            self._norm_layer(f"{name}.post_attention_layernorm", checkpoint),
            self._mlp(f"{name}.mlp"),
        )

    def _attention(self, name: str, layer: LayerConfig, checkpoint: Checkpoint, backend: PagedAttention) -> Attention:
        config = self.config
        query_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        return Attention(
            qkv=self._linear.column_parallel(
                [f"{name}.q_proj", f"{name}.k_proj", f"{name}.v_proj"],
                [query_size, kv_size, kv_size],
                config.hidden_size,
                config.qkv_bias,
            ),
            output=self._linear.row_parallel(f"{name}.o_proj", config.hidden_size, query_size, config.output_bias),
            backend=backend,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            rotary=self._rotary if layer.rotary else None,
            sliding_window=layer.sliding_window,
            query_norm=self._head_norm(f"{name}.q_norm", checkpoint),
            key_norm=self._head_norm(f"{name}.k_norm", checkpoint),
        )

    def _mlp(self, name: str) -> GatedMlp:
        config = self.config
        gate_up = self._linear.column_parallel(
            [f"{name}.gate_proj", f"{name}.up_proj"],
            [config.intermediate_size] * 2,
            config.hidden_size,
            config.mlp_bias,
        )
        down = self._linear.row_parallel(
            f"{name}.down_proj", config.hidden_size, config.intermediate_size, config.mlp_bias
        )
        return GatedMlp(gate_up, down)

    def _norm_layer(self, name: str, checkpoint: Checkpoint) -> RmsNorm:
        return RmsNorm(checkpoint.take(f"{name}.weight", self.config.hidden_size), self.config.rms_norm_eps)

    def _head_norm(self, name: str, checkpoint: Checkpoint) -> RmsNorm | None:
        if not self.config.qk_norm:
            return None
        return RmsNorm(checkpoint.take(f"{name}.weight", self.config.head_dim), self.config.rms_norm_eps)

    def _language_model_head(self, checkpoint: Checkpoint) -> LinearLayer:
        sizes = self.config.vocab_size, self.config.hidden_size
        if self.config.tie_word_embeddings:
            checkpoint.ignore("lm_head.weight")  # some checkpoints carry the copy
            return self._linear.head("model.embed_tokens.weight", *sizes, self._embedding.weight)
        return self._linear.head("lm_head.weight", *sizes)
