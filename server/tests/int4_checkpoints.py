"""Tiny models whose linear layers lie in 4 bits as GPTQ or AWQ store them, and the same numbers as plain weights."""

import json
import shutil
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


def write(plain_model: Path, root: Path, config: dict[str, Any], *, act_order: bool = False) -> Pair:
    """Round the linear layers of a plain model; `config` becomes the quantized one's quantization_config."""
    pair = Pair(root / "quantized", root / "plain")
    for directory in (pair.quantized, pair.plain):
        shutil.copytree(plain_model, directory)
    tensors = load_file(plain_model / "model.safetensors")
    quantized, plain = {}, {}
    for name, tensor in tensors.items():
        if name.endswith("_proj.weight"):
            stored, plain[name] = _round(tensor, config, act_order)
            quantized |= {name.replace("weight", kind): values.contiguous() for kind, values in stored.items()}
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
    group_size = config["group_size"] if config["group_size"] > 0 else inputs
    group_of = torch.arange(inputs) // group_size
    if act_order:
        group_of = group_of[torch.randperm(inputs, generator=torch.Generator().manual_seed(1))]
    columns = weight.float().T  # [in, out]
    groups = [columns[group_of == group] for group in range(int(group_of.max()) + 1)]
    scales = torch.stack([(rows.amax(0) - rows.amin(0)) / 14 for rows in groups]).half()
    zeros = torch.stack(
        [(-rows.amin(0) / scale).round() + 1 for rows, scale in zip(groups, scales.float(), strict=True)]
    )
    zeros = zeros.clamp(1, 15).int()
    numbers = ((columns / scales.float()[group_of]).round().int() + zeros[group_of]).clamp(0, 15)
    plain = (scales.float()[group_of] * (numbers - zeros[group_of])).T.contiguous()
    if config["quant_method"] == "awq":
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
