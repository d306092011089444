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
        model = AutoModelForCausalLM.from_pretrained(self.model_dir, dtype=dtype).eval()
        # What a call leaves unset is taken from here, also an end-of-sequence token that it sets to None.
        model.generation_config.eos_token_id = None
        return model

    def ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=True)["input_ids"]

    def greedy(self, prompt: str, count: int) -> list[int]:
        """Exactly `count` greedy tokens in float32, end-of-sequence ignored."""
        return self._generate([prompt], count)[0]

    def greedy_many(self, prompts: list[str], count: int) -> dict[str, list[int]]:
        """`greedy` of each prompt, sooner: generated in one batch, and each answer kept only if it is what the model
        says of that sequence alone, without padding. Any other is generated alone."""
        answers = zip(prompts, self._generate(prompts, count), strict=True)
        return {prompt: ids if self._is_greedy(prompt, ids) else self.greedy(prompt, count) for prompt, ids in answers}

    @torch.inference_mode()
    def _generate(self, prompts: list[str], count: int) -> list[list[int]]:
        given = [self.ids(prompt) for prompt in prompts]
        width = max(map(len, given))
        ids = torch.tensor([[0] * (width - len(one)) + one for one in given])
        mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in given])
        answer = self.model(torch.float32).generate(ids, attention_mask=mask, generation_config=exactly(count))
        return answer[:, width:].tolist()

    @torch.inference_mode()
    def _is_greedy(self, prompt: str, answer: list[int]) -> bool:
        """One forward pass over prompt and answer: every token of the answer is the arg-max of what precedes it."""
        ids = self.ids(prompt) + answer
        logits = self.model(torch.float32)(torch.tensor([ids])).logits[0]
        return logits[-len(answer) - 1 : -1].argmax(-1).tolist() == answer

    @torch.inference_mode()
    def prompt_logprobs(self, prompt: str, dtype: torch.dtype) -> list[float]:
        """Log-probability of each token of the prompt but the first, given those before it."""
        ids = torch.tensor([self.ids(prompt)])
        logits = self.model(dtype)(ids).logits[0, :-1].float()
        return torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0].tolist()
