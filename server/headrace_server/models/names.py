"""What the weights of the Llama family are called in a checkpoint. Every name of a linear layer stands for `.weight`,
and `.bias` where the layer has one."""

from dataclasses import dataclass

EMBEDDING = "model.embed_tokens"
FINAL_NORM = "model.norm"
HEAD = "lm_head"


@dataclass(frozen=True)
class LayerNames:
    """Of one decoder layer."""

    layer: str

    @classmethod
    def of(cls, index: int) -> "LayerNames":
        return cls(f"model.layers.{index}")

    @property
    def input_norm(self) -> str:
        return f"{self.layer}.input_layernorm"

    @property
    def attention(self) -> str:
        return f"{self.layer}.self_attn"

    @property
    def query(self) -> str:
        return f"{self.attention}.q_proj"

    @property
    def key(self) -> str:
        return f"{self.attention}.k_proj"

    @property
    def value(self) -> str:
        return f"{self.attention}.v_proj"

    @property
    def query_norm(self) -> str:
        return f"{self.attention}.q_norm"

    @property
    def key_norm(self) -> str:
        return f"{self.attention}.k_norm"

    @property
    def key_scale(self) -> tuple[str, ...]:
        """What the keys of a float8 cache are multiplied with is one of these tensors: tools differ."""
        return (*(f"{place}.k_scale" for place in (self.attention, self.key)), *self._old_scale(self.key))

    @property
    def value_scale(self) -> tuple[str, ...]:
        """The same for values."""
        return (*(f"{place}.v_scale" for place in (self.attention, self.value)), *self._old_scale(self.value))

    @property
    def output(self) -> str:
        return f"{self.attention}.o_proj"

    @property
    def mlp_norm(self) -> str:
        return f"{self.layer}.post_attention_layernorm"

    @property
    def gate(self) -> str:
        return f"{self.layer}.mlp.gate_proj"

    @property
    def up(self) -> str:
        return f"{self.layer}.mlp.up_proj"

    @property
    def down(self) -> str:
        return f"{self.layer}.mlp.down_proj"

    def _old_scale(self, projection: str) -> tuple[str, str]:
        return f"{projection}.output_scale", f"{self.attention}.kv_scale"
