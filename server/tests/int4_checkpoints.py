"""Tiny models whose linear layers lie in 4 bits as tools store them, and the same numbers as plain weights."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

GPTQ_PLACES = [0, 1, 2, 3, 4, 5, 6, 7]
AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]
"""Of eight neighbours the i-th goes to bits 4 places[i] of their word."""


@dataclass(frozen=True)
class Pair:
    """Two directories of one model."""

    quantized: Path
    plain: Path


def compressed(group_size: int | None, symmetric: bool, actorder: str | None = None) -> dict[str, Any]:
    """A quantization_config of compressed-tensors in 4 bits; None: one group of all inputs."""
    weights = {
        "num_bits": 4,
        "type": "int",
        "strategy": "channel" if group_size is None else "group",
        "group_size": group_size,
        "symmetric": symmetric,
        "actorder": actorder,
        "dynamic": False,
    }
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "quantization_status": "compressed",
    }


def write(
    plain_model: Path,
    root: Path,
    config: dict[str, Any],
    *,
    act_order: bool = False,
    is_plain: Callable[[str], bool] = lambda name: False,
) -> Pair:
    """Round the linear layers of a plain model, but for those modules whose name `is_plain`; `config` becomes the
    quantized one's quantization_config."""
    pair = Pair(root / "quantized", root / "plain")
    for directory in (pair.quantized, pair.plain):
        shutil.copytree(plain_model, directory)
    tensors = load_file(plain_model / "model.safetensors")
    quantized, plain = {}, {}
    for name, tensor in tensors.items():
        if name.endswith("_proj.weight") and not is_plain(name):
            stored, plain[name] = _round(tensor, config, act_order)
            module = name.removesuffix("weight")
            quantized |= {f"{module}{kind}": values.contiguous() for kind, values in stored.items()}
        else:
            quantized[name] = plain[name] = tensor
    save_file(quantized, pair.quantized / "model.safetensors")
    save_file(plain, pair.plain / "model.safetensors")
    said = json.loads((pair.quantized / "config.json").read_text())
    (pair.quantized / "config.json").write_text(json.dumps({**said, "quantization_config": config}))
    return pair


def _round(weight: Tensor, config: dict[str, Any], act_order: bool) -> tuple[dict[str, Tensor], Tensor]:
    """(what the checkpoint stores for a weight [out, in], the weight it stands for)."""
    inputs = weight.shape[1]
    method = config["quant_method"]
    weights = config["config_groups"]["group_0"]["weights"] if method == "compressed-tensors" else config
    group_size = inputs if weights["group_size"] in (None, -1) else weights["group_size"]
    group_of = torch.arange(inputs) // group_size
    if act_order:
        group_of = group_of[torch.randperm(inputs, generator=torch.Generator().manual_seed(1))]
    columns = weight.float().T  # [in, out]
    groups = [columns[group_of == group] for group in range(int(group_of.max()) + 1)]
    scales = torch.stack([(rows.amax(0) - rows.amin(0)) / 14 for rows in groups]).half()
    zeros = torch.stack(
        [(-rows.amin(0) / scale).round() + 1 for rows, scale in zip(groups, scales.float(), strict=True)]
    )
    zeros = torch.full_like(zeros, 8).int() if weights.get("symmetric") else zeros.clamp(1, 15).int()
    numbers = ((columns / scales.float()[group_of]).round().int() + zeros[group_of]).clamp(0, 15)
    plain = (scales.float()[group_of] * (numbers - zeros[group_of])).T.contiguous()
    if method == "compressed-tensors":
        stored = {
            "weight_packed": pack(numbers.T, 1, GPTQ_PLACES),
            "weight_scale": scales.T,
            "weight_shape": torch.tensor(weight.shape),
        }
        stored |= {} if weights["symmetric"] else {"weight_zero_point": pack(zeros.T, 0, GPTQ_PLACES)}
        stored |= {"weight_g_idx": group_of.int()} if act_order else {}
    elif method == "awq":
        stored = {"qweight": pack(numbers, 1, AWQ_PLACES), "qzeros": pack(zeros, 1, AWQ_PLACES), "scales": scales}
    else:
        offset = 0 if config.get("checkpoint_format") == "gptq_v2" else 1
        stored = {
            "qweight": pack(numbers, 0, GPTQ_PLACES),
            "qzeros": pack(zeros - offset, 1, GPTQ_PLACES),
            "scales": scales,
            "g_idx": group_of.int(),
        }
    return stored, plain


def pack(numbers: Tensor, axis: int, places: list[int]) -> Tensor:
    """Eight neighbours along `axis` become an int32."""
    eights = numbers.movedim(axis, -1).unflatten(-1, (-1, 8))
    words = torch.zeros(eights.shape[:-1], dtype=torch.int32)
    for i, place in enumerate(places):
        words |= eights[..., i] << 4 * place
    return words.movedim(-1, axis).contiguous()
