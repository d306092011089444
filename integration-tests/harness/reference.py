"""transformers on the same files: what the answers must be."""

from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


def exactly(count: int) -> GenerationConfig:
    """Greedy, `count` tokens, end-of-sequence ignored."""
    return GenerationConfig(do_sample=False, max_new_tokens=count, eos_token_id=None, pad_token_id=0)


class Reference:
    """Greedy tokens and log-probabilities from transformers, computed when first asked for."""

    def __init__(self, model_dir: Path):
        self.model_dir = model_dir
        self.tokenizer = AutoTokenizer.from_pretrained(model_dir)
        self.model = cache(self._load)

    def _load(self, dtype: torch.dtype) -> Any:
        return AutoModelForCausalLM.from_pretrained(self.model_dir, dtype=dtype).eval()

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=True)["input_ids"]

    @torch.inference_mode()
    def greedy(self, prompt: str, count: int) -> list[int]:
        """Exactly `count` greedy tokens in float32, end-of-sequence ignored."""
        ids = torch.tensor([self.ids(prompt)])
        answer = self.model(torch.float32).generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=exactly(count),
        )
        return answer[0, ids.shape[1] :].tolist()

    @torch.inference_mode()
    def prompt_logprobs(self, prompt: str, dtype: torch.dtype) -> list[float]:
        """Log-probability of each token of the prompt but the first, given those before it."""
        ids = torch.tensor([self.ids(prompt)])
        logits = self.model(dtype)(ids).logits[0, :-1].float()
        return torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0].tolist()
