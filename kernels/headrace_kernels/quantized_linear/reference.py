"""The definition of `quantized_linear` in numpy, and of what each kind of packed weight means."""

import numpy as np
from numpy.typing import NDArray

from headrace_kernels.quantized_linear.formats import COLUMNS, GROUP, NESTED, Array, Kind, QuantizedWeight

Floats = NDArray[np.float32]


def quantized_linear(x: Array, weight: QuantizedWeight) -> Floats:
    """See `headrace_kernels.quantized_linear.quantized_linear`. Every sum over groups is in float32."""
    quants, scales = quantize_rows(x, -(-weight.in_features // GROUP))
    u, scale, minimum = unpack(weight)
    out = np.zeros((len(x), weight.out_features), np.float32)
    for g in range(quants.shape[1]):
        sums = quants[:, g].astype(np.int64) @ u[:, g].astype(np.int64).T
        steps, least = scale[:, g], minimum[:, g]
        if weight.kind in _OFFSETS:  # the minimum is a whole number of scales: part of the exact sum
            sums -= _OFFSETS[weight.kind] * quants[:, g].astype(np.int64).sum(axis=1, keepdims=True)
            least = np.zeros_like(least)
        totals = scales[:, g] * quants[:, g].sum(axis=1, dtype=np.int64).astype(np.float32)
        out = _fma(scales[:, g, None] * steps, sums.astype(np.float32), out)
        out = _fma(totals[:, None], least[None, :], out)
    return out


def quantize_rows(x: Array, groups: int) -> tuple[NDArray[np.int8], Floats]:
    """x [rows, in_features] → quants [rows, groups, 32] in [-127, 127] and scales [rows, groups].

    scale = (largest magnitude of the group) / 127, quant = x * (127 / largest) rounded to nearest even. Below 1e-30 all
    are zero; a group with a NaN or an infinity has quants of zero and a scale of NaN.
    """
    padded = np.zeros((len(x), groups * GROUP), np.float32)
    padded[:, : x.shape[1]] = widen(x)
    values = padded.reshape(len(x), groups, GROUP)
    largest = np.abs(values).max(axis=2)
    finite = np.isfinite(values).all(axis=2)
    used = finite & (largest >= np.float32(1e-30))
    inverse = np.zeros_like(largest)
    np.divide(np.float32(127), largest, out=inverse, where=used)
    quants = np.rint(np.where(used[..., None], values, 0) * inverse[..., None]).astype(np.int8)
    scales = np.where(used, largest / np.float32(127), np.float32(0))
    return quants, np.where(finite, scales, np.float32("nan")).astype(np.float32)


def unpack(weight: QuantizedWeight) -> tuple[NDArray[np.uint8], Floats, Floats]:
    """u [out_features, groups, 32], scale and minimum [out_features, groups]."""
    groups = -(-weight.in_features // GROUP)
    panels = weight.packed.reshape(-1, weight.kind.panel_bytes(groups))
    split = weight.kind.factor_bytes(groups)
    scale, minimum = _factors(weight.kind, panels[:, :split], groups)
    u = _quants(weight.kind, panels[:, split:], groups)
    rows = weight.out_features
    return (
        u.transpose(0, 2, 1, 3).reshape(-1, groups, GROUP)[:rows],
        scale.swapaxes(1, 2).reshape(-1, groups)[:rows],
        minimum.swapaxes(1, 2).reshape(-1, groups)[:rows],
    )


def dequantize(weight: QuantizedWeight) -> Floats:
    """[out_features, in_features]: scale * u + minimum, or scale * (u - 8) and the like where that is what is meant."""
    u, scale, minimum = unpack(weight)
    if weight.kind in _OFFSETS:
        values = scale[..., None] * (u.astype(np.float32) - np.float32(_OFFSETS[weight.kind]))
    else:
        values = scale[..., None] * u.astype(np.float32) + minimum[..., None]
    return values.reshape(weight.out_features, -1)[:, : weight.in_features]


def widen(x: Array) -> Floats:
    """float32 of float32 or of bfloat16, which numpy carries as uint16."""
    if x.dtype == np.uint16:
        return (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float32, copy=False)


_OFFSETS = {Kind.INT8: 128, Kind.INT4_SYMMETRIC: 8}


def _factors(kind: Kind, factors: Array, groups: int) -> tuple[Floats, Floats]:
    """Of each panel: scale and minimum [panels, groups, 16]."""
    if kind is Kind.INT4_NESTED:
        outer = -(-groups // NESTED)
        blocks = factors[:, : outer * (2 + NESTED) * 2 * COLUMNS].reshape(len(factors), outer, -1)
        shared = np.ascontiguousarray(blocks[..., : 4 * COLUMNS]).view(np.float16).astype(np.float32)
        own = blocks[..., 4 * COLUMNS :].reshape(len(factors), outer, NESTED, 2, COLUMNS).astype(np.float32)
        both = shared.reshape(len(factors), outer, 1, 2, COLUMNS) * own
        both = both.reshape(len(factors), -1, 2, COLUMNS)[:, :groups]
        return both[:, :, 0], -both[:, :, 1]
    per_group = 2 if kind is Kind.INT4 else 1
    used = np.ascontiguousarray(factors[:, : groups * per_group * 2 * COLUMNS]).view(np.float16).astype(np.float32)
    used = used.reshape(len(factors), groups, per_group, COLUMNS)
    scale = used[:, :, 0]
    return scale, used[:, :, 1] if kind is Kind.INT4 else scale * np.float32(-_OFFSETS[kind])


def _quants(kind: Kind, lines: Array, groups: int) -> NDArray[np.uint8]:
    """Of each panel: [panels, groups, 16, 32]."""
    lines = lines.reshape(len(lines), groups, -1, COLUMNS, 4).swapaxes(2, 3)  # [panels, groups, 16, lines, 4]
    flat = np.ascontiguousarray(lines).reshape(len(lines), groups, COLUMNS, -1)
    return flat if kind is Kind.INT8 else np.concatenate([flat & 15, flat >> 4], axis=3)


def _fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c: the product is exact in float64, and the sum is rounded to float32 from there."""
    with np.errstate(invalid="ignore", over="ignore"):
        return (a.astype(np.float64) * b.astype(np.float64) + c).astype(np.float32)
