"""`--quantize`: what a model's weights become, how far its answers move, and what does not move at all."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from shard_world import World, forward_logits, load, random_tokens
from tiny_models import TinyModel, save

from headrace_kernels.decoder import DecoderWeights
from headrace_kernels.linear import PackedLinear
from headrace_kernels.quantized_linear import Kind, QuantizedWeight, dequantize
from headrace_server import load as loading
from headrace_server.compute.on_cpu import CpuCompute
from headrace_server.distributed.collective import Alone
from headrace_server.errors import ConfigError, WeightsError
from headrace_server.quantization.method import quantization_method
from headrace_server.runner import Runner
from headrace_server.weights.index import SOURCE_BLOCKS, SOURCE_LINK
from headrace_server.weights.source_blocks import SourceTensor, table_document

METHODS = pytest.mark.parametrize("method", ["int8", "int4"])
DTYPES = pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
TOKENS = random_tokens(60, seed=3)
SIZES = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "initializer_range": 0.05}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TinyModel:
    """Wide enough for the largest blocks."""
    return save("Qwen2", tmp_path_factory.mktemp("qwen2"), tie_word_embeddings=True, **SIZES)


def logits(directory: Path, *flags: str, dtype: str = "float32", chunk: int = 100) -> torch.Tensor:
    return forward_logits(World(load(directory, *flags, dtype=dtype)), 0, TOKENS, chunk)


def mean_shift(a: torch.Tensor, b: torch.Tensor) -> float:
    """Of the log-probabilities of all tokens."""
    return float((a.log_softmax(-1) - b.log_softmax(-1)).abs().mean())


@pytest.mark.parametrize(("method", "limit"), [("int8", 0.03), ("int4", 0.25)])
@DTYPES
def test_log_probabilities_move_little(method: str, limit: float, dtype: str, model: TinyModel) -> None:
    exact = model.logits(TOKENS)
    quantized = logits(model.directory, "--quantize", method, dtype=dtype)
    assert quantized.dtype is torch.float32
    assert 0 < mean_shift(quantized, exact) < limit


@METHODS
def test_the_error_is_that_of_the_weights_and_of_rounding_rows(method: str, model: TinyModel) -> None:
    """Beside transformers with the same quantized weights only the rounding of rows to 8 bits is left."""
    runner = load(model.directory, "--quantize", method)
    quantized = forward_logits(World(runner), 0, TOKENS, 100)
    reference = save("Qwen2", model.directory.parent / f"again-{method}", tie_word_embeddings=True, **SIZES).reference
    weights = weights_of(runner)
    with torch.no_grad():
        for theirs, ours in zip(reference.model.layers, weights.layers, strict=True):
            attention, mlp = theirs.self_attn, theirs.mlp
            fill([attention.q_proj, attention.k_proj, attention.v_proj], values_of(ours.qkv))
            fill([attention.o_proj], values_of(ours.output))
            gates_and_ups = values_of(ours.gate_up).reshape(-1, 2, 16, ours.gate_up.in_features)
            fill([mlp.gate_proj], gates_and_ups[:, 0].reshape(-1, ours.gate_up.in_features))
            fill([mlp.up_proj], gates_and_ups[:, 1].reshape(-1, ours.gate_up.in_features))
            fill([mlp.down_proj], values_of(ours.down))
        hidden = reference.model(torch.tensor([TOKENS])).last_hidden_state[0]
        same_weights = hidden @ torch.from_numpy(values_of(weights.head))[: quantized.shape[1]].T
    assert mean_shift(quantized, same_weights) < 0.02


def weights_of(runner: Runner) -> DecoderWeights:
    assert isinstance(runner.compute, CpuCompute)
    return runner.compute.weights


def values_of(layer: PackedLinear) -> np.ndarray:
    """[columns, in_features]: what the packed weights stand for."""
    return dequantize(QuantizedWeight(Kind(layer.kind), layer.num_panels * 16, layer.in_features, layer.panels))


def fill(modules: list[torch.nn.Linear], values: np.ndarray) -> None:
    """transformers' modules get the weights that the fused layer stands for."""
    parts = torch.from_numpy(values).split([module.out_features for module in modules])
    for module, part in zip(modules, parts, strict=True):
        module.weight.copy_(part)


@METHODS
@pytest.mark.parametrize("chunk", [1, 7, 59])
def test_a_token_has_the_same_bits_however_its_prompt_is_cut(method: str, chunk: int, model: TinyModel) -> None:
    whole = logits(model.directory, "--quantize", method, dtype="bfloat16")
    assert torch.equal(logits(model.directory, "--quantize", method, dtype="bfloat16", chunk=chunk), whole)


@pytest.mark.parametrize(("method", "limit"), [("int8", 0.3), ("int4", 2.0)])
def test_layers_whose_width_is_no_whole_group_work_too(method: str, limit: float, tiny_llama: TinyModel) -> None:
    """64 and 112 wide: the last group of 112 is half padding. The weights are large, and so is what errors do."""
    assert mean_shift(logits(tiny_llama.directory, "--quantize", method), tiny_llama.logits(TOKENS)) < limit


@METHODS
def test_an_untied_head_is_quantized_to_eight_bits(method: str, tiny_llama: TinyModel) -> None:
    assert weights_of(load(tiny_llama.directory, "--quantize", method)).head.kind == Kind.INT8


def test_the_log_says_what_the_weights_were_made_of(model: TinyModel, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        load(model.directory, "--quantize", "int4")
    assert "weights of linear layers: 14 tensors quantized to 4 bits, 1 tensors quantized to 8 bits" in caplog.text


BYTES = {"Q8_0": 34 / 32, "Q4_0": 18 / 32, "Q4_1": 20 / 32, "Q4_K": 144 / 256, "Q6_K": 210 / 256}
"""Of one element in blocks."""


class Gguf:
    """A model directory that looks converted; all blocks are zeros, so that their use shows."""

    def __init__(self, model: TinyModel, directory: Path) -> None:
        self.directory = Path(shutil.copytree(model.directory, directory))
        self._tensors: dict[str, SourceTensor] = {}
        self._size = 0

    def holds(self, name: str, block_type: str, shape: tuple[int, int]) -> "Gguf":
        row_bytes = int(shape[1] * BYTES[block_type])
        self._tensors[name] = SourceTensor(block_type, self._size, shape, row_bytes, None)
        self._size += shape[0] * row_bytes
        (self.directory / SOURCE_LINK).write_bytes(bytes(self._size))
        (self.directory / SOURCE_BLOCKS).write_text(json.dumps(table_document(self._size, self._tensors)))
        return self


@pytest.fixture
def gguf(model: TinyModel, tmp_path: Path) -> Gguf:
    return Gguf(model, tmp_path / "model")


DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("method", "block_type", "kind", "as_they_are"),
    [
        ("int8", "Q8_0", Kind.INT8, True),
        ("int8", "Q4_1", Kind.INT8, False),
        ("int4", "Q4_1", Kind.INT4, True),
        ("int4", "Q8_0", Kind.INT8, True),
        ("int4", "Q6_K", Kind.INT8, False),
    ],
)
def test_blocks_are_used_as_they_are_where_they_fit(
    method: str, block_type: str, kind: Kind, as_they_are: bool, gguf: Gguf
) -> None:
    gguf.holds(DOWN, block_type, (256, 512))
    down = weights_of(load(gguf.directory, "--quantize", method)).layers[1].down
    assert down.kind == kind
    assert bool(np.any(values_of(down))) != as_they_are


def test_projections_of_different_kinds_become_one_layer_of_eight_bits(gguf: Gguf) -> None:
    gguf.holds("model.layers.0.mlp.gate_proj.weight", "Q4_1", (512, 256))
    gguf.holds("model.layers.0.mlp.up_proj.weight", "Q8_0", (512, 256))
    gate_up = weights_of(load(gguf.directory, "--quantize", "int4")).layers[0].gate_up
    assert gate_up.kind == Kind.INT8
    gates_and_ups = values_of(gate_up).reshape(-1, 2, 16, 256)
    assert np.any(gates_and_ups[:, 0]) and not np.any(gates_and_ups[:, 1])


def test_blocks_of_another_shape_are_named(gguf: Gguf) -> None:
    gguf.holds(DOWN, "Q8_0", (256, 256))
    with pytest.raises(WeightsError, match=r"down_proj\.weight' of the GGUF has shape \[256, 256\], but config\.json"):
        load(gguf.directory, "--quantize", "int8")


def test_what_the_other_kind_of_device_computes_with_is_refused(model: TinyModel) -> None:
    with pytest.raises(ConfigError, match="--quantize fp8: only a GPU computes with such weights; on a CPU take int8"):
        load(model.directory, "--quantize", "fp8")
    with pytest.raises(ConfigError, match="--quantize int4: only a CPU computes with such weights; take int8, fp8"):
        quantization_method(None, "int4", torch.device("cuda"))


def test_float16_is_refused(model: TinyModel) -> None:
    with pytest.raises(ConfigError, match="--quantize int8: needs --dtype float32 or bfloat16, not float16"):
        load(model.directory, "--quantize", "int8", dtype="float16")


def test_where_another_rank_can_not_it_is_refused(model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    class OneOfTwo(Alone):
        def least(self, value: int) -> int:
            return 0

    monkeypatch.setattr(loading, "_collective", lambda *_: OneOfTwo())
    for flags in (["--quantize", "int8"], ["--kv-cache-dtype", "int8"]):
        with pytest.raises(ConfigError, match=r"int8: needs the C\+\+ kernels, which another rank cannot use"):
            load(model.directory, *flags)


def test_with_an_attention_backend_it_is_refused(model: TinyModel) -> None:
    with pytest.raises(ConfigError, match=r"--quantize int8: --attention-backend triton computes without the C\+\+"):
        load(model.directory, "--quantize", "int8", "--attention-backend", "triton")


def test_without_the_library_it_is_refused(model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.native, "available", lambda: False)
    with pytest.raises(ConfigError, match=r"--quantize int4: needs the C\+\+ kernels: "):
        load(model.directory, "--quantize", "int4")
