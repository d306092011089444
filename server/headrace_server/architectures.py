"""The model architectures that Headrace computes, by `model_type` of config.json.

One list, read by `prepare` (which refuses any other model before the server starts) and by the model registry (which
must hold an implementation for each entry). It imports nothing, so that checking a model stays fast.
"""

MODEL_CLASSES: dict[str, str] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
}
"""`model_type` → the class name that `architectures` of config.json carries for it."""

MODEL_TYPES: tuple[str, ...] = tuple(MODEL_CLASSES)
"""Every supported `model_type`, in the order that messages list them."""
