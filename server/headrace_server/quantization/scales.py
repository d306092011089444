"""Where a checkpoint in 8 bits keeps the scales of a module. No torch."""

from headrace_server.weights.files import CheckpointFiles

OF_WEIGHTS = ("weight_scale", "weight_scale_inv")
"""Either is what stored numbers are multiplied with."""
OF_ROWS = ("input_scale", "activation_scale")
"""One for all rows. Not used: each row gets one of its own, which is never worse."""


def scales_name(checkpoint: CheckpointFiles, module: str) -> str | None:
    """The tensor of its weights' scales; None: the weights are plain."""
    for kind in OF_ROWS:
        checkpoint.ignore(f"{module}.{kind}")
    return next((name for kind in OF_WEIGHTS if checkpoint.has(name := f"{module}.{kind}")), None)
