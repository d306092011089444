"""A small decoder with seeded weights, and sequences in its cache that are computed in any cuts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from headrace_kernels import native
from headrace_kernels.decoder import Decoder, DecoderWeights, KvLayer, LayerWeights, StepInputs, StepOutputs
from headrace_kernels.decoder.reference import PlainDecoder, PlainLayer
from headrace_kernels.kv_cache import kv_cache_shape
from headrace_kernels.linear import PANEL_COLUMNS, LinearPacker, PackedLinear, num_panels, place_bias
from headrace_kernels.memory import Arena, huge_zeros
from headrace_kernels.quantized_linear import Kind, pack


@dataclass(frozen=True)
class Shape:
    """Sizes and switches of a model."""

    hidden: int = 96
    inner: int = 80
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    vocab: int = 131
    rotary_dim: int | None = None
    windows: tuple[int | None, ...] = (None, None)
    biases: bool = False
    head_norms: bool = False
    nope_layers: tuple[int, ...] = ()
    block_size: int = 32
    dtype: int = native.FLOAT32
    eight_bit_cache: bool = False
    weights: Kind | None = None  # of linear layers and head; None: dtype


POSITIONS = 1200


def plain_model(shape: Shape, seed: int = 5) -> PlainDecoder:
    """Seeded weights in the shape's dtype."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> NDArray:
        return stored((rng.standard_normal((rows, columns)) * (1.5 / np.sqrt(columns))).astype(np.float32))

    def vector(size: int, around: float = 1.0) -> NDArray:
        return stored((around + 0.2 * rng.standard_normal(size)).astype(np.float32))

    def stored(values: NDArray) -> NDArray:
        return (values.view(np.uint32) >> 16).astype(np.uint16) if shape.dtype == native.BFLOAT16 else values

    query, kv, dim = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.head_dim
    layers = [
        PlainLayer(
            input_norm=vector(shape.hidden),
            mlp_norm=vector(shape.hidden),
            query_norm=vector(dim) if shape.head_norms else None,
            key_norm=vector(dim) if shape.head_norms else None,
            query=matrix(query, shape.hidden),
            key=matrix(kv, shape.hidden),
            value=matrix(kv, shape.hidden),
            output=matrix(shape.hidden, query),
            gate=matrix(shape.inner, shape.hidden),
            up=matrix(shape.inner, shape.hidden),
            down=matrix(shape.hidden, shape.inner),
            qkv_bias=vector(query + 2 * kv, 0.0) if shape.biases else None,
            output_bias=vector(shape.hidden, 0.0) if shape.biases else None,
            window=window,
            rotary=index not in shape.nope_layers,
        )
        for index, window in enumerate(shape.windows)
    ]
    rotary_dim = shape.rotary_dim or dim
    angles = np.arange(POSITIONS)[:, None] / 100.0 ** (np.arange(0, rotary_dim, 2) / rotary_dim)
    cos_sin = np.concatenate((np.cos(angles), np.sin(angles)), axis=1).astype(np.float32)
    embedding = matrix(shape.vocab, shape.hidden)
    head = matrix(shape.vocab, shape.hidden)
    norms = (shape.heads, shape.kv_heads, dim, 1e-5, shape.dtype == native.BFLOAT16, shape.eight_bit_cache)
    return PlainDecoder(layers, embedding, vector(shape.hidden), head, cos_sin, *norms)


def packed_model(
    plain: PlainDecoder, shape: Shape, vocabulary: range | None = None, *, carries_residual: bool = True
) -> DecoderWeights:
    """The same for C++. Of a rank's slices `vocabulary` says which tokens' embedding and head there are."""
    arena = Arena()

    def wide(values: NDArray | None) -> NDArray[np.float32] | None:
        if values is None or values.dtype == np.float32:
            return values
        return (values.astype(np.uint32) << 16).view(np.float32)

    def packed(parts: Sequence[NDArray], step: int, biases: Sequence[NDArray] | None = None) -> PackedLinear:
        """Parts one below the other, or (`step` 2) two that take turns, panel by panel."""
        counts = [num_panels(len(part)) for part in parts]
        firsts = range(len(parts)) if step > 1 else np.cumsum([0, *counts])[:-1].tolist()
        panels, k = sum(counts), parts[0].shape[1]
        bias = None if biases is None else np.zeros(panels * PANEL_COLUMNS, np.float32)
        for first, values in zip(firsts, biases or (), strict=False):
            place_bias(bias, values, first, step)
        if shape.weights is None:
            packer = LinearPacker(arena, panels, k, shape.dtype, bias=False)
            for first, part in zip(firsts, parts, strict=True):
                packer.add(part, first, step)
            return replace(packer.packed(), bias=bias)
        rows = np.zeros((panels, PANEL_COLUMNS, k), parts[0].dtype)
        for first, part in zip(firsts, parts, strict=True):
            whole = np.zeros((num_panels(len(part)) * PANEL_COLUMNS, k), part.dtype)
            whole[: len(part)] = part
            own = whole.reshape(-1, PANEL_COLUMNS, k)
            rows[first : first + len(own) * step : step] = own
        weight = pack([rows.reshape(-1, k)], shape.weights, arena)
        return PackedLinear(weight.packed, panels, k, shape.weights, bias)

    def heads(layer: PlainLayer) -> PackedLinear:
        every = np.concatenate((layer.query, layer.key, layer.value))
        count = max(len(every) // shape.head_dim, 1)
        bias = wide(layer.qkv_bias)
        return packed(np.split(every, count), 1, None if bias is None else np.split(bias, count))

    layers = []
    for layer in plain.layers:
        output_bias = wide(layer.output_bias)
        layers.append(
            LayerWeights(
                wide(layer.input_norm),
                wide(layer.mlp_norm),
                wide(layer.query_norm),
                wide(layer.key_norm),
                heads(layer),
                packed([layer.output], 1, None if output_bias is None else [output_bias]),
                packed([layer.gate, layer.up], 2),
                packed([layer.down], 1),
                layer.window,
                layer.rotary,
            )
        )
    return DecoderWeights(
        layers,
        plain.embedding,
        wide(plain.norm),
        packed([plain.head], 1),
        shape.dtype,
        shape.hidden,
        shape.inner,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        plain.cos_sin.shape[1],
        shape.vocab,
        vocabulary or range(shape.vocab),
        carries_residual,
        plain.eps,
    )


@dataclass
class World:
    """Sequences whose blocks lie anywhere in the pool. `step` computes the next tokens of some of them."""

    shape: Shape
    sequences: list[list[int]]
    seed: int = 7
    num_blocks: int = 200
    computed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plain = plain_model(self.shape)
        self.start()

    def start(self, seed: int | None = None) -> None:
        """Nothing is computed, and everybody's blocks lie elsewhere. What the pool holds before is NaN."""
        shape, rng = self.shape, np.random.default_rng(self.seed if seed is None else seed)
        stored = np.uint16 if shape.dtype == native.BFLOAT16 else np.float32
        element = np.int8 if shape.eight_bit_cache else stored
        sizes = (self.num_blocks, shape.block_size, shape.kv_heads, shape.head_dim)
        cache_shape = kv_cache_shape(*sizes, int8=shape.eight_bit_cache)
        cache = [KvLayer(*(huge_zeros(cache_shape, element) for _ in range(2))) for _ in self.plain.layers]
        for layer in cache:
            for values in (layer.keys, layer.values):
                # In 8 bits all bits set are quants of -1 and scales that are NaN.
                values[:] = {np.int8: -1, np.uint16: 0x7FC0, np.float32: np.nan}[element]
        self.decoder = Decoder(packed_model(self.plain, shape), self.plain.cos_sin, cache, shape.block_size)
        self.decoder.reserve(16, 16)
        free = rng.permutation(self.num_blocks)
        self.blocks = []
        for sequence in self.sequences:
            count = -(-len(sequence) // shape.block_size)
            self.blocks.append(free[:count])
            free = free[count:]
        self.computed = [0] * len(self.sequences)

    def step(self, counts: dict[int, int], *, whole: bool = True) -> NDArray[np.float32]:
        """Compute so many more tokens of these sequences: their logits, of all tokens or (`whole` False) the last."""
        parts = {s: self.sequences[s][self.computed[s] : self.computed[s] + n] for s, n in counts.items()}
        for s, n in counts.items():
            self.computed[s] += n
        return self.run(parts, whole=whole).logits

    def run(self, parts: dict[int, list[int]], *, whole: bool = True) -> StepOutputs:
        """A step of the last tokens of these sequences."""
        starts = np.cumsum([0, *(len(part) for part in parts.values())])
        most = max(len(self.blocks[s]) for s in parts)
        tables = np.full((len(parts), most), -1, np.int32)
        for table, s in zip(tables, parts, strict=True):
            table[: len(self.blocks[s])] = self.blocks[s]
        sampled = np.arange(starts[-1]) if whole else starts[1:] - 1
        return self.decoder.forward(
            StepInputs(
                np.concatenate([np.array(part, np.int64) for part in parts.values()]),
                tables,
                starts.astype(np.int32),
                np.array([self.computed[s] for s in parts], np.int32),
                sampled.astype(np.int64),
                np.ones(len(sampled), np.bool_),
            )
        )

    def whole(self, sequence: int, chunk: int) -> NDArray[np.float32]:
        """The logits of all tokens of a sequence, `chunk` at a time, alone."""
        parts = []
        while (left := len(self.sequences[sequence]) - self.computed[sequence]) > 0:
            parts.append(self.step({sequence: min(chunk, left)}))
        return np.concatenate(parts)


def tokens(length: int, seed: int, vocab: int = 131) -> list[int]:
    """Seeded token ids."""
    return np.random.default_rng(seed).integers(0, vocab, length).tolist()
