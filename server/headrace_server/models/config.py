"""What a model of the Llama family is, after config.json has been read. No torch: it is checked before torch loads."""

from dataclasses import dataclass

from headrace_kernels.kv_cache import padded_head_dim
from headrace_server.layers.rope_parameters import RopeParameters
from headrace_server.quantization.stored import Stored


@dataclass(frozen=True)
class LayerConfig:
    """What one decoder layer does differently from its neighbours."""

    rotary: bool  # False: no position embedding in this layer (SmolLM3's NoPE layers)
    sliding_window: int | None  # positions a query sees, itself included; None: all before it


@dataclass(frozen=True)
class ModelConfig:
    """Shapes and switches. Sizes are of the whole model, before any split over ranks."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope: RopeParameters
    qkv_bias: bool
    output_bias: bool  # of attention's output projection
    mlp_bias: bool
    qk_norm: bool  # RMS norm of each query and key head before rotation (Qwen3)
    tie_word_embeddings: bool
    quantization: Stored | None  # of the checkpoint's own weights; None: they are plain
    layers: tuple[LayerConfig, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """Fields of config.json that are sizes of tensors."""
        return {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "head_dim": self.head_dim,
        }

    @property
    def max_positions(self) -> int:
        """Longest sequence the position embedding is made for, tokens."""
        return self.rope.max_positions

    def kv_bytes_per_token(self, element_size: int, num_kv_heads: int | None = None, scale_bytes: int = 0) -> int:
        """Bytes that one token takes in the caches of all layers, where heads are padded and may have a scale each; of
        some of the heads only."""
        heads = self.num_kv_heads if num_kv_heads is None else num_kv_heads
        return 2 * len(self.layers) * heads * (padded_head_dim(self.head_dim) * element_size + scale_bytes)
