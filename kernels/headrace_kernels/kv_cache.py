"""How the paged KV cache lies in memory. Only this file and the kernels know it.

A *block* holds `block_size` consecutive positions of one sequence. A *slot* is one position in the cache:
block * block_size + offset. Keys and values are two arrays of the same shape, one pair a layer.

A (block, head) is one contiguous piece, in one of two orders. The plain one is [offset, element]: Triton's, and that of
the libraries for GPUs. The C++ kernels want *panels* (see `cpu/lines.h`), the right-hand sides of attention's products:
16 columns by all of K, four bytes of K at a time.

    keys    [offset // 16][element // pack][offset % 16][element % pack]     columns are positions, K is the head
    values  [element // 16][offset // pack][element % 16][offset % pack]     columns are elements, K is positions

with pack = 4 // element size. Copying whole blocks works alike with either.

Elements have the type of the activations, or are 8-bit floats: then a cached number times its layer's scale is the key
or value.

**In int8** (the C++ decoder's alone) a (block, head) of keys, or of values, has as many int8 in the order of the
model's type, then for each position a float32 scale: the key's element is scale * quant. A position's scale is the
largest magnitude in its (token, head), divided by 127; quants are rounded to nearest.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

DEFAULT_BLOCK_SIZE = {"cpu": 32, "cuda": 16}
"""Tokens a block, by device type. On the CPU a (block, head) of 64 bfloat16 is then exactly one 4 KiB page."""

MIN_BLOCK_SIZE = 16
"""Columns of a panel: a panel of keys lies within one block."""

PANEL_COLUMNS = 16

SCALE_BYTES = 4
"""What a position of an int8 cache has behind its quants."""


def default_block_size(device_type: str) -> int:
    """Tokens a block when the user doesn't say: 32 on the CPU, 16 elsewhere."""
    return DEFAULT_BLOCK_SIZE.get(device_type, 16)


def padded_head_dim(head_dim: int) -> int:
    """Elements of a head in the cache: whole panels."""
    return -(-head_dim // PANEL_COLUMNS) * PANEL_COLUMNS


def kv_cache_shape(
    num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int, *, int8: bool = False
) -> tuple[int, int, int, int]:
    """The shape of a layer's keys, and of its values: [num_blocks, num_kv_heads, block_size, padded_head_dim].

    The last two axes say how large a (block, head) is; in which order its elements lie is said above. In int8 the
    last is longer by SCALE_BYTES.
    """
    if not is_block_size(block_size):
        raise ValueError(f"block_size {block_size}: must be a power of two, at least {MIN_BLOCK_SIZE}")
    width = padded_head_dim(head_dim) + (SCALE_BYTES if int8 else 0)
    return (num_blocks, num_kv_heads, block_size, width)


def is_block_size(block_size: int) -> bool:
    """Whether the kernels can work with blocks of this many tokens."""
    return block_size >= MIN_BLOCK_SIZE and block_size & (block_size - 1) == 0


def has_panels(panels: bool | None, backend: str, cache: "Tensor") -> bool:
    """The order of a cache whose owner said `panels`; None: the one that `backend` works with, the C++ kernels' if it
    is the reference on a CPU."""
    return panels if panels is not None else backend != "triton" and cache.is_cpu


def read_keys(cache: "Tensor", blocks: "Tensor", *, panels: bool = True) -> "Tensor":
    """Blocks of keys in the plain order: [len(blocks), num_kv_heads, block_size, padded_head_dim]."""
    found = _codes(cache)[blocks] if not panels else _key_panels(_codes(cache))[blocks].permute(0, 1, 2, 4, 3, 5)
    return found.reshape(-1, *cache.shape[1:]).view(cache.dtype)


def read_values(cache: "Tensor", blocks: "Tensor", *, panels: bool = True) -> "Tensor":
    """Blocks of values in the plain order, as `read_keys`."""
    found = _codes(cache)[blocks] if not panels else _value_panels(_codes(cache))[blocks].permute(0, 1, 3, 5, 2, 4)
    return found.reshape(-1, *cache.shape[1:]).view(cache.dtype)


def write_keys(cache: "Tensor", blocks: "Tensor", offsets: "Tensor", keys: "Tensor", *, panels: bool = True) -> None:
    """Put keys [n, num_kv_heads, padded_head_dim] at (blocks[i], offsets[i])."""
    cache, keys = _codes(cache), _codes(keys)
    if not panels:
        cache[blocks, :, offsets] = keys
    else:
        view = _key_panels(cache)
        panel, column = offsets // PANEL_COLUMNS, offsets % PANEL_COLUMNS
        view[blocks, :, panel, :, column] = keys.view(*keys.shape[:2], *view.shape[3::2])


def write_values(
    cache: "Tensor", blocks: "Tensor", offsets: "Tensor", values: "Tensor", *, panels: bool = True
) -> None:
    """The same of values."""
    cache, values = _codes(cache), _codes(values)
    if not panels:
        cache[blocks, :, offsets] = values
    else:
        view = _value_panels(cache)
        line, place = offsets // view.shape[5], offsets % view.shape[5]
        view[blocks, :, :, line, :, place] = values.view(*values.shape[:2], *view.shape[2:5:2])


def _codes(tensor: "Tensor") -> "Tensor":
    """8-bit floats as the integers that they are stored as: torch can index those."""
    import torch

    return tensor.view(torch.uint8) if tensor.element_size() == 1 else tensor


def _key_panels(cache: "Tensor") -> "Tensor":
    """[num_blocks, num_kv_heads, offset // 16, element // pack, offset % 16, element % pack]"""
    num_blocks, num_kv_heads, block_size, dim = cache.shape
    pack = 4 // cache.element_size()
    return cache.view(num_blocks, num_kv_heads, block_size // PANEL_COLUMNS, dim // pack, PANEL_COLUMNS, pack)


def _value_panels(cache: "Tensor") -> "Tensor":
    """[num_blocks, num_kv_heads, element // 16, offset // pack, element % 16, offset % pack]"""
    num_blocks, num_kv_heads, block_size, dim = cache.shape
    pack = 4 // cache.element_size()
    return cache.view(num_blocks, num_kv_heads, dim // PANEL_COLUMNS, block_size // pack, PANEL_COLUMNS, pack)
