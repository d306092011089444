"""Linear layers of 8-bit and 4-bit weights on a CPU, made of a plain checkpoint or of the blocks of its GGUF.

Blocks of as many bits as were asked for are used as they are: no number in them changes. All else is quantized from the
converted weights, in groups of 32.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.linear import PANEL_COLUMNS, PackedLinear, num_panels, place_bias
from headrace_kernels.memory import Arena
from headrace_kernels.quantized_linear import Blocks, Kind, pack
from headrace_server.errors import ConfigError, WeightsError
from headrace_server.quantization.parts import Part
from headrace_server.weights.arrays import ArrayCheckpoint
from headrace_server.weights.files import ADVICE
from headrace_server.weights.slice import Slice
from headrace_server.weights.source_blocks import SourceBlocks, SourceRows

BLOCKS = {"Q8_0": Kind.INT8, "Q4_0": Kind.INT4_SYMMETRIC, "Q4_1": Kind.INT4, "Q4_K": Kind.INT4_NESTED}
"""GGUF's block types that a kernel reads as they are."""
WIDER = ("Q5_0", "Q5_1", "Q5_K", "Q6_K", "Q8_0")
"""Those to which whoever made a 4-bit GGUF gave more bits, because the tensor needs them."""

Rows = NDArray | Blocks


@dataclass(frozen=True)
class QuantizedLinears:
    """The layers of a model whose weights are quantized when it is loaded."""

    source: SourceBlocks
    kinds: Mapping[str, Kind]  # what becomes of a tensor that lies in the GGUF in blocks of this type
    otherwise: Kind  # what becomes of all others
    head_otherwise: Kind  # the same for the language-model head
    _made_of: Counter[str] = field(default_factory=Counter)  # description → tensors
    _arena: Arena = field(default_factory=Arena)

    def make(
        self, checkpoint: ArrayCheckpoint, parts: Sequence[Part], inputs: Slice, *, bias: bool, head: bool = False
    ) -> PackedLinear:
        """Where the kinds of the parts differ all are quantized to 8 bits: one product reads one kind, and the widest
        loses least."""
        otherwise = self.head_otherwise if head else self.otherwise
        taken = _rows_taken(parts)
        found = {name: self._found(name, rows.size, inputs.size) for name, rows in taken.items()}
        kinds = {otherwise if rows is None else self.kinds.get(rows.type, otherwise) for rows in found.values()}
        kind = kinds.pop() if len(kinds) == 1 else Kind.INT8
        weights = {
            name: self._weights(checkpoint, name, rows, inputs, found[name], kind) for name, rows in taken.items()
        }
        panels = sum(num_panels(len(part.rows)) for part in parts)
        pieces = _in_panels(parts, {name: (taken[name].begin, weights[name]) for name in taken}, len(inputs))
        weight = pack(pieces, kind, self._arena)
        biases = np.zeros(panels * PANEL_COLUMNS, np.float32) if bias else None
        for part in parts:
            if biases is not None:
                values = checkpoint.take_float32(f"{part.name}.bias", part.rows, rounded=False)
                place_bias(biases, values, part.first_panel, part.step)
        return PackedLinear(weight.packed, panels, len(inputs), kind, biases)

    def description(self) -> str:
        """What the weights were made of, for the log."""
        made = ", ".join(f"{count} tensors {what}" for what, count in sorted(self._made_of.items()))
        return f"weights of linear layers: {made}"

    def _found(self, name: str, height: int, width: int) -> SourceRows | None:
        rows = self.source.get(f"{name}.weight")
        if rows is not None and rows.shape != (height, width):
            raise WeightsError(
                f"tensor '{name}.weight' of the GGUF has shape {list(rows.shape)}, but config.json makes it "
                f"{[height, width]}; {ADVICE}"
            )
        return rows

    def _weights(
        self,
        checkpoint: ArrayCheckpoint,
        name: str,
        rows: Slice,
        inputs: Slice,
        found: SourceRows | None,
        kind: Kind,
    ) -> Rows:
        if found is not None and BLOCKS.get(found.type) is kind:
            checkpoint.ignore(f"{name}.weight")
            self._made_of[f"as their blocks of {found.type}"] += 1
            data = found.data[:, _block_bytes(name, inputs, found.type)]
            return _slice(Blocks(kind, len(inputs), data, found.order), rows.begin, rows.end)
        self._made_of[f"quantized to {kind.bits} bits"] += 1
        return checkpoint.take(f"{name}.weight", rows, inputs)


def _rows_taken(parts: Sequence[Part]) -> dict[str, Slice]:
    """Of each module all that its parts take: consecutive rows."""
    taken: dict[str, Slice] = {}
    for part in parts:
        begin = taken[part.name].begin if part.name in taken else part.rows.begin
        taken[part.name] = Slice(part.rows.size, begin, part.rows.end)
    return taken


def _block_bytes(name: str, inputs: Slice, block_type: str) -> slice:
    """Where in a row the blocks of these inputs lie. Raises ConfigError if a block is cut."""
    elements, size = BLOCKS[block_type].block
    if inputs.begin % elements or inputs.end % elements:
        raise ConfigError(
            f"{name}: a rank has the inputs {inputs.begin} to {inputs.end}, which cuts the GGUF's blocks of {elements} "
            f"weights ({block_type}); take another --num-shard"
        )
    return slice(inputs.begin // elements * size, inputs.end // elements * size)


def _in_panels(parts: Sequence[Part], weights: Mapping[str, tuple[int, Rows]], width: int) -> list[Rows]:
    """The parts' rows in the order of the layer's columns, of each module's rows from a first one on; what is padded to
    a whole panel gets zeros."""
    placed: list[tuple[int, Rows]] = []
    for part in parts:
        first, rows = weights[part.name]
        # Parts that take turns are cut into panels, others stay whole.
        size = len(part.rows) if part.step == 1 else PANEL_COLUMNS
        for i, begin in enumerate(range(part.rows.begin, part.rows.end, size)):
            end = min(begin + size, part.rows.end)
            panel = part.first_panel + i * part.step
            placed.append((panel, _slice(rows, begin - first, end - first)))
            if padding := -(end - begin) % PANEL_COLUMNS:
                placed.append((panel, np.zeros((padding, width), np.float32)))
    # Sorting is stable, so padding stays behind what it pads.
    return [piece for _, piece in sorted(placed, key=lambda place: place[0])]


def _slice(rows: Rows, begin: int, end: int) -> Rows:
    if not isinstance(rows, Blocks):
        return rows[begin:end]
    if rows.order is None:
        return Blocks(rows.kind, rows.in_features, rows.data[begin:end])
    return Blocks(rows.kind, rows.in_features, rows.data, rows.order[begin:end])
