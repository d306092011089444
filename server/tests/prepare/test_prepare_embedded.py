"""The embedded model computes what its GGUF holds."""

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from headrace_server.prepare.sources import find_embedded_gguf


@pytest.fixture(scope="module")
def model(embedded):
    return AutoModelForCausalLM.from_pretrained(embedded, dtype=torch.float32).eval()


def greedy(model, embedded, prompt, count):
    """(id, log-probability) of each greedily chosen token."""
    ids = torch.tensor([Tokenizer.from_file(str(embedded / "tokenizer.json")).encode(prompt).ids])
    options = {"do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    result = model.generate(ids, max_new_tokens=count, **options)
    tokens = result.sequences[0, ids.shape[1] :].tolist()
    chances = [torch.log_softmax(logits[0], -1) for logits in result.logits]
    return [(token, chance[token].item()) for token, chance in zip(tokens, chances, strict=True)]


def test_weights_equal_an_independent_reading_of_the_gguf(model):
    # transformers dequantises and reorders on its own; torch rounds. Not a bit may differ.
    tensors = load_gguf_checkpoint(str(find_embedded_gguf()), return_tensors=True, model_to_load=model)["tensors"]
    weights = model.state_dict()
    assert {name for name in weights if name not in tensors} <= {"lm_head.weight"}  # tied
    different = [name for name, value in tensors.items() if not torch.equal(value.bfloat16().float(), weights[name])]
    assert different == []


def test_the_capital_of_france(model, embedded):
    (token, chance), *rest = greedy(model, embedded, "The capital of France is", 8)
    assert (token, chance) == (7042, pytest.approx(-0.2606, abs=0.01))
    text = Tokenizer.from_file(str(embedded / "tokenizer.json")).decode([token, *(token for token, _ in rest)])
    assert text == " Paris.\n\nThe answer is:"


def test_a_chat_answer_is_the_recorded_one(model, embedded):
    prompt = "<|im_start|>user\nSay hi.<|im_end|>\n<|im_start|>assistant\n"
    recorded = [(19556, -1.7857), (665, -0.8396), (30, -1.0614), (339, -1.3465), (5248, -0.2184), (1535, -1.5198)]
    for (token, chance), (expected, its_chance) in zip(greedy(model, embedded, prompt, 6), recorded, strict=True):
        assert (token, chance) == (expected, pytest.approx(its_chance, abs=0.01))
