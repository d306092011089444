"""The settings of checkpoints whose `quant_method` is "compressed-tensors".

One group of settings for all linear layers. Which modules it leaves out (`ignore`) shows in what they are stored as.
"""

from headrace_server.fields import Fields
from headrace_server.quantization.read_fp8 import block_of
from headrace_server.quantization.settings import group_size_of, only
from headrace_server.quantization.stored import Stored, StoredEightBits, StoredInt4

METHOD = "compressed-tensors"
FORMATS = {"float-quantized": "float", "int-quantized": "int", "naive-quantized": None, "pack-quantized": "int"}
"""How weights lie in the files, and the `type` that they have then; None: either."""
TENSORS = {"float": "F8_E4M3", "int": "I8"}
"""safetensors' name of 8 bits of a `type`."""


def read_compressed(fields: Fields) -> Stored | None:
    """None: only keys and values have scales, weights are plain."""
    if (sparsity := fields.nested("sparsity_config")) is not None:
        only(sparsity, "format", sparsity.text("format", "dense"), "dense")
    if (transform := fields.nested("transform_config")) is not None and transform.names():
        raise fields.error("transform_config", "rotates activations; supported: no transform")
    _check_cache(fields.nested("kv_cache_scheme"))
    groups = fields.nested("config_groups")
    names = groups.names() if groups is not None else ()
    if groups is None or not names:
        return None
    group = groups.nested(names[0])
    if len(names) > 1 or group is None:
        raise fields.error("config_groups", f"has {len(names)} groups of settings; supported: one for all layers")
    return _group(group, fields.text("format") if not group.has("format") else group.text("format"), fields)


def _group(group: Fields, stored_as: str, fields: Fields) -> Stored:
    only(group if group.has("format") else fields, "format", stored_as, *FORMATS)
    if group.has("output_activations"):
        raise group.error("output_activations", "is there; supported: null")
    weights, rows = group.nested("weights"), group.nested("input_activations")
    if weights is None:
        raise group.error("weights", "is missing")
    kind = weights.text("type", "int")
    only(weights, "type", kind, *([wanted] if (wanted := FORMATS[stored_as]) else TENSORS))
    if stored_as == "pack-quantized":
        return _four_bits(group, weights)
    only(weights, "num_bits", weights.integer("num_bits"), 8)
    only(weights, "symmetric", weights.boolean("symmetric", True), True)
    strategy = weights.text("strategy", "tensor")
    only(weights, "strategy", strategy, "tensor", "channel", *(["block"] if kind == "float" else []))
    outputs, inputs = {"tensor": (None, None), "channel": (1, None)}.get(strategy) or block_of(
        weights, "block_structure"
    )
    if rows is not None:
        only(rows, "num_bits", rows.integer("num_bits"), 8)
        only(rows, "type", rows.text("type", "int"), kind)
        only(rows, "symmetric", rows.boolean("symmetric", True), True)
    return StoredEightBits(
        METHOD,
        TENSORS[kind],
        outputs,
        inputs,
        rounds_rows=rows is not None,
        has_row_scales=rows is not None and not rows.boolean("dynamic", False),
    )


def _four_bits(group: Fields, weights: Fields) -> StoredInt4:
    only(weights, "num_bits", weights.integer("num_bits"), 4)
    if group.has("input_activations"):
        raise group.error("input_activations", "is there; supported with 4-bit weights: null")
    strategy = weights.text("strategy", "group" if weights.has("group_size") else "channel")
    only(weights, "strategy", strategy, "group", "channel")
    return StoredInt4(
        METHOD,
        group_size_of(weights, "group_size") if strategy == "group" else None,
        act_order=weights.text("actorder", "none").lower() in ("group", "dynamic"),
    )


def _check_cache(scheme: Fields | None) -> None:
    """Scales that `--kv-cache-dtype fp8_e4m3fn` can use."""
    if scheme is not None:
        only(scheme, "num_bits", scheme.integer("num_bits"), 8)
        only(scheme, "type", scheme.text("type", "float"), "float")
        only(scheme, "strategy", scheme.text("strategy", "tensor"), "tensor")
        only(scheme, "symmetric", scheme.boolean("symmetric", True), True)
