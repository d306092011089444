"""An independent reading of GGUF's block types: scalar loops over bytes, straight from the formats' descriptions."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
from gguf import GGMLQuantizationType as Type

SIZES = {  # elements, bytes
    Type.Q4_0: (32, 18),
    Type.Q4_1: (32, 20),
    Type.Q5_0: (32, 22),
    Type.Q5_1: (32, 24),
    Type.Q8_0: (32, 34),
    Type.Q4_K: (256, 144),
    Type.Q5_K: (256, 176),
    Type.Q6_K: (256, 210),
}

# Where each type keeps float16 scales; random bits there would be infinities.
_HALVES = {
    Type.Q4_0: [0],
    Type.Q4_1: [0, 2],
    Type.Q5_0: [0],
    Type.Q5_1: [0, 2],
    Type.Q8_0: [0],
    Type.Q4_K: [0, 2],
    Type.Q5_K: [0, 2],
    Type.Q6_K: [208],
}


def random_blocks(block_type: Type, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Blocks of every bit pattern but for sane scales: [rows, bytes of a row] uint8."""
    generator = np.random.default_rng(seed)
    elements, size = SIZES[block_type]
    rows, columns = shape
    blocks = generator.integers(0, 256, (rows * columns // elements, size), dtype=np.uint8)
    for offset in _HALVES[block_type]:
        scales = (generator.standard_normal(len(blocks)) * 0.01).astype(np.float16)
        blocks[:, offset : offset + 2] = scales[:, None].view(np.uint8)
    return blocks.reshape(rows, -1)


def dequantize(rows: np.ndarray, block_type: Type) -> np.ndarray:
    """[rows, bytes] uint8 → [rows, columns] float32."""
    size = SIZES[block_type][1]
    read = _READERS[block_type]
    return np.array(
        [
            [value for start in range(0, len(row), size) for value in read(row[start : start + size])]
            for row in (bytes(row) for row in rows)
        ],
        dtype=np.float32,
    )


def _half(block: bytes, offset: int) -> np.float32:
    return np.float32(struct.unpack_from("<e", block, offset)[0])


def _nibbles(data: bytes) -> list[int]:
    """Low halves of all bytes, then high halves."""
    return [byte & 15 for byte in data] + [byte >> 4 for byte in data]


def _q4_0(block: bytes) -> list[np.float32]:
    scale = _half(block, 0)
    return [scale * np.float32(quant - 8) for quant in _nibbles(block[2:])]


def _q4_1(block: bytes) -> list[np.float32]:
    scale, least = _half(block, 0), _half(block, 2)
    return [scale * np.float32(quant) + least for quant in _nibbles(block[4:])]


def _fifth_bits(word: bytes, quants: list[int]) -> list[int]:
    bits = int.from_bytes(word, "little")
    return [quant | ((bits >> place & 1) << 4) for place, quant in enumerate(quants)]


def _q5_0(block: bytes) -> list[np.float32]:
    scale = _half(block, 0)
    return [scale * np.float32(quant - 16) for quant in _fifth_bits(block[2:6], _nibbles(block[6:]))]


def _q5_1(block: bytes) -> list[np.float32]:
    scale, least = _half(block, 0), _half(block, 2)
    return [scale * np.float32(quant) + least for quant in _fifth_bits(block[4:8], _nibbles(block[8:]))]


def _q8_0(block: bytes) -> list[np.float32]:
    scale = _half(block, 0)
    return [scale * np.float32(quant) for quant in struct.unpack_from("<32b", block, 2)]


def _six_bits(packed: bytes, group: int) -> tuple[int, int]:
    """Scale and minimum of one of the eight groups of a K block."""
    if group < 4:
        return packed[group] & 63, packed[group + 4] & 63
    low, high = packed[group + 4], packed[group - 4] >> 6
    return (low & 15) | (high << 4), (low >> 4) | ((packed[group] >> 6) << 4)


def _k_block(block: bytes, quants: list[int]) -> list[np.float32]:
    scale, least = _half(block, 0), _half(block, 2)
    values = []
    for group in range(8):
        factor, minimum = _six_bits(block[4:16], group)
        step, offset = scale * np.float32(factor), least * np.float32(minimum)
        values += [step * np.float32(quant) - offset for quant in quants[32 * group : 32 * group + 32]]
    return values


def _k_nibbles(data: bytes) -> list[int]:
    """Each 32 bytes hold two groups: the low halves are the first, the high halves the second."""
    return [quant for start in range(0, 128, 32) for quant in _nibbles(data[start : start + 32])]


def _q4_k(block: bytes) -> list[np.float32]:
    return _k_block(block, _k_nibbles(block[16:]))


def _q5_k(block: bytes) -> list[np.float32]:
    high = block[16:48]
    quants = _k_nibbles(block[48:])
    return _k_block(block, [quant | ((high[i % 32] >> (i // 32) & 1) << 4) for i, quant in enumerate(quants)])


def _q6_k(block: bytes) -> list[np.float32]:
    low, high, scales = block[:128], block[128:192], struct.unpack_from("<16b", block, 192)
    scale = _half(block, 208)
    values = []
    for i in range(256):
        half, place = divmod(i, 128)
        quarter, column = divmod(place, 32)
        nibble = low[64 * half + 32 * (quarter % 2) + column] >> (4 * (quarter // 2)) & 15
        pair = high[32 * half + column] >> (2 * quarter) & 3
        values.append(scale * np.float32(scales[i // 16]) * np.float32((nibble | pair << 4) - 32))
    return values


_READERS: dict[Type, Callable[[bytes], list[np.float32]]] = {
    Type.Q4_0: _q4_0,
    Type.Q4_1: _q4_1,
    Type.Q5_0: _q5_0,
    Type.Q5_1: _q5_1,
    Type.Q8_0: _q8_0,
    Type.Q4_K: _q4_k,
    Type.Q5_K: _q5_k,
    Type.Q6_K: _q6_k,
}
