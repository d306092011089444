"""Tiny models whose linear layers lie in 8 bits as tools store them, and the same numbers as plain weights."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from int4_checkpoints import Pair
from safetensors.torch import load_file, save_file
from torch import Tensor

from headrace_kernels.quantize_rows import LARGEST


@dataclass(frozen=True)
class Kind:
    """How a tool stores them."""

    config: dict[str, Any]  # its quantization_config
    block: tuple[int | None, int | None]  # outputs and inputs that share a scale; None: all
    scale: str = "weight_scale"
    scale_shape: tuple[int, ...] | None = None  # None: [blocks of outputs, blocks of inputs]
    scale_dtype: torch.dtype = torch.float32
    dtype: torch.dtype = torch.float8_e4m3fn
    beside: dict[str, Tensor] = field(default_factory=dict)  # more tensors of each module, by the ends of their names


def compressed(kind: str, strategy: str, rows: dict[str, Any] | None, **weights: Any) -> dict[str, Any]:
    """A quantization_config of compressed-tensors in 8 bits."""
    settings = {"num_bits": 8, "type": kind, "strategy": strategy, "symmetric": True, "dynamic": False, **weights}
    rounded = rows and {"num_bits": 8, "type": kind, "symmetric": True, **rows}
    group = {"targets": ["Linear"], "weights": settings, "input_activations": rounded, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": f"{kind}-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
    }


TOKEN = {"strategy": "token", "dynamic": True}
STATIC = {"strategy": "tensor", "dynamic": False}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
KINDS = {
    "fp8": Kind(FP8, (None, None), scale_shape=()),
    "fp8, static rows": Kind(
        {**FP8, "activation_scheme": "static", "ignored_layers": ["lm_head"]},
        (None, None),
        scale_shape=(1,),
        beside={"input_scale": torch.tensor([0.02])},
    ),
    "fp8 by Mistral": Kind(
        {**FP8, "activation_scheme": "static", "weight_block_size": None},
        (None, None),
        "weight_scale_inv",
        (),
        torch.bfloat16,
        beside={"activation_scale": torch.tensor(0.02)},
    ),
    "fp8 in blocks": Kind({**FP8, "fmt": "e4m3", "weight_block_size": [48, 32]}, (48, 32), "weight_scale_inv"),
    "fbgemm": Kind({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, (1, None)),
    "float, channels": Kind(compressed("float", "channel", TOKEN), (1, None), scale_dtype=torch.bfloat16),
    "float, one scale": Kind(
        compressed("float", "tensor", STATIC),
        (None, None),
        scale_shape=(1,),
        beside={"input_scale": torch.tensor([0.02])},
    ),
    "float, weights alone": Kind(compressed("float", "channel", None), (1, None)),
    "float in blocks": Kind(
        compressed("float", "block", {"strategy": "group", "dynamic": True}, block_structure=[16, 64]), (16, 64)
    ),
    "int8": Kind(compressed("int", "channel", TOKEN), (1, None), dtype=torch.int8),
}


def write(plain_model: Path, root: Path, kind: Kind, is_plain: Callable[[str], bool] = lambda name: False) -> Pair:
    """Round the linear layers of a plain model, but for those modules whose name `is_plain`."""
    pair = Pair(root / "quantized", root / "plain")
    for directory in (pair.quantized, pair.plain):
        shutil.copytree(plain_model, directory)
    quantized, plain = {}, {}
    for name, tensor in load_file(plain_model / "model.safetensors").items():
        module, _, end = name.rpartition(".")
        if module.endswith("_proj") and end == "weight" and not is_plain(module):
            values, scales, plain[name] = _round(tensor, kind)
            shape = scales.shape if kind.scale_shape is None else kind.scale_shape
            quantized |= {name: values, f"{module}.{kind.scale}": scales.reshape(shape)}
            quantized |= {f"{module}.{what}": beside.clone() for what, beside in kind.beside.items()}
        else:
            quantized[name] = plain[name] = tensor
    save_file(quantized, pair.quantized / "model.safetensors")
    save_file(plain, pair.plain / "model.safetensors")
    said = json.loads((pair.quantized / "config.json").read_text())
    (pair.quantized / "config.json").write_text(json.dumps({**said, "quantization_config": kind.config}))
    return pair


def _round(weight: Tensor, kind: Kind) -> tuple[Tensor, Tensor, Tensor]:
    """(numbers, scales [blocks of outputs, blocks of inputs], the weight that they stand for)."""
    tall, wide = (block or size for block, size in zip(kind.block, weight.shape, strict=True))
    rows = [part.split(wide, 1) for part in weight.split(tall)]
    largest = torch.tensor([[float(block.abs().max()) for block in row] for row in rows])
    scales = (largest / LARGEST[kind.dtype]).to(kind.scale_dtype)
    each = scales.float().repeat_interleave(tall, 0)[: len(weight)].repeat_interleave(wide, 1)[:, : weight.shape[1]]
    scaled = (weight / each).clamp(-LARGEST[kind.dtype], LARGEST[kind.dtype])
    values = (scaled.round() if kind.dtype is torch.int8 else scaled).to(kind.dtype)
    return values, scales, values.float() * each
