"""The settings of checkpoints that GPTQ or AWQ made."""

from headrace_server.fields import Fields
from headrace_server.quantization.settings import group_size_of, only
from headrace_server.quantization.stored import StoredInt4

GPTQ_ZERO_OFFSETS = {"gptq": 1, "gptq_v2": 0}
"""`checkpoint_format`: what was subtracted from zeros before they were stored."""


def read_gptq(fields: Fields) -> StoredInt4:
    only(fields, "bits", fields.integer("bits"), 4)
    only(fields, "lm_head", fields.boolean("lm_head", False), False)
    only(fields, "pack_dtype", fields.text("pack_dtype", "int32"), "int32")
    if fields.nested("dynamic"):
        raise fields.error("dynamic", "gives modules settings of their own; only one for all is supported")
    stored_as = fields.text("checkpoint_format", "gptq")
    if stored_as not in GPTQ_ZERO_OFFSETS:
        raise fields.error("checkpoint_format", f"is '{stored_as}'; supported: {', '.join(GPTQ_ZERO_OFFSETS)}")
    return StoredInt4(
        "gptq",
        group_size_of(fields, "group_size"),
        GPTQ_ZERO_OFFSETS[stored_as],
        act_order=fields.boolean("desc_act", False),
    )


def read_awq(fields: Fields) -> StoredInt4:
    bits, group_size = (old if fields.has(old) else new for new, old in _AWQ_NAMES)
    only(fields, bits, fields.integer(bits), 4)
    only(fields, "version", fields.text("version", "gemm").lower(), "gemm")
    only(fields, "zero_point", fields.boolean("zero_point", True), True)
    return StoredInt4("awq", group_size_of(fields, group_size))


_AWQ_NAMES = (("bits", "w_bit"), ("group_size", "q_group_size"))
