"""Philox4x32-10 of Salmon et al. (2011) on arrays of torch or numpy. Unsigned 32-bit words are held in int64."""

from typing import Any

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
MASK = 0xFFFFFFFF


def philox(counter: tuple[Any, ...], key: tuple[Any, Any]) -> tuple[Any, ...]:
    """Four words of counter and two of key, broadcast against each other, to four words."""
    a, b, c, d = counter
    low, high = key
    for _ in range(ROUNDS):
        # The products wrap as signed 64-bit numbers; their bits are the unsigned ones.
        left, right = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (right >> 32 & MASK) ^ b ^ low, right & MASK, (left >> 32 & MASK) ^ d ^ high, left & MASK
        low, high = low + WEYL[0] & MASK, high + WEYL[1] & MASK
    return a, b, c, d
