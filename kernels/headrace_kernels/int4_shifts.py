"""Where the eight numbers of an int32 word begin, in bits. No torch: a CPU unpacks checkpoints in numpy."""

WORD = 8
"""Numbers of one."""

IN_ORDER = (0, 4, 8, 12, 16, 20, 24, 28)
"""GPTQ's weights, its zeros, and ours: the first in the lowest bits."""

AWQ = (0, 16, 4, 20, 8, 24, 12, 28)
"""AWQ's weights and zeros: those in even places in the lower half, those in odd ones in the upper."""
