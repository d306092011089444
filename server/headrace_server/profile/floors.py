"""What each operation of a step must read and multiply, however well it is written.

Read is what no cache holds from step to step: weights and the KV cache. What operations hand to each other stays in
the caches where a step is small, and costs a step little where it is large.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headrace_kernels.decoder import OPERATIONS, DecoderWeights
from headrace_kernels.linear import DENSE, PANEL_COLUMNS, PackedLinear
from headrace_server.profile.machine import Machine
from headrace_server.profile.shapes import Extent


@dataclass(frozen=True, slots=True)
class Need:
    """Of one operation, in all layers."""

    bytes: int
    flops: dict[int, int]  # kind of weights → multiplications and additions

    @property
    def all_flops(self) -> int:
        return sum(self.flops.values())

    def floor_s(self, machine: Machine) -> float:
        """Seconds: whatever takes longer, reading or multiplying, the other one hidden behind it."""
        multiplying = sum(flops / machine.flops[kind] for kind, flops in self.flops.items())
        return max(self.bytes / machine.bandwidth, multiplying)


def add(needs: Iterable[Need]) -> Need:
    """Of several operations together; one may read while another multiplies, so floors don't add up."""
    size, flops = 0, Counter[int]()
    for need in needs:
        size += need.bytes
        flops.update(need.flops)
    return Need(size, dict(flops))


def needs_of_step(weights: DecoderWeights, extent: Extent, sampled: int, kv_bytes_per_token: int) -> dict[str, Need]:
    """Operation → need. Norms and the rounding of rows to 8 bits read nothing but what is near."""
    tokens = extent.tokens
    layer_bytes = kv_bytes_per_token // len(weights.layers)
    a_pair = 4 * weights.num_heads * weights.head_dim  # score and weighted value, two operations an element each
    windows = [layer.window for layer in weights.layers]
    attention = Need(
        sum(extent.keys(window) for window in windows) * layer_bytes,
        {DENSE: a_pair * sum(extent.pairs(window) for window in windows)},
    )
    needs = dict.fromkeys(OPERATIONS, Need(0, {})) | {
        "embedding": Need(tokens * weights.embedding[0].nbytes, {}),
        "attention": attention,
        "head": _need(weights.head, sampled),
    }
    for operation in ("qkv", "output", "gate_up", "down"):
        needs[operation] = add(_need(getattr(layer, operation), tokens) for layer in weights.layers)
    return needs


def kinds_of(weights: DecoderWeights) -> set[int]:
    """Kinds of weights that the model multiplies by; attention multiplies by the model's own type."""
    return {DENSE, *(linear.kind for linear in all_linears(weights))}


def weight_bytes(weights: DecoderWeights) -> int:
    """What the model takes of memory, without a few norms and biases."""
    return weights.embedding.nbytes + sum(linear.nbytes for linear in all_linears(weights))


def all_linears(weights: DecoderWeights) -> Iterable[PackedLinear]:
    for layer in weights.layers:
        yield from (layer.qkv, layer.output, layer.gate_up, layer.down)
    yield weights.head


def _need(linear: PackedLinear, rows: int) -> Need:
    flops = 2 * rows * linear.in_features * linear.num_panels * PANEL_COLUMNS
    return Need(linear.nbytes, {linear.kind: flops})
