"""Blocks that are copied, packed and swapped, in the interpreter, against their definitions."""

import pytest
import strategies as draw
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace_kernels.copy_blocks import block_bytes, copy_blocks, pack_blocks, unpack_blocks
from headrace_kernels.copy_blocks.swap import AT_ONCE, host_pool, swap_in, swap_out
from headrace_kernels.ops import ArgumentError, cache_pointers

shapes = st.sampled_from([(7, 1, 4, 2), (7, 2, 16, 24), (7, 3, 16, 80)])


def pool(shape: tuple[int, ...], dtype: torch.dtype, count: int = 4) -> list[torch.Tensor]:
    return [draw.tensor(*shape, seed=seed, dtype=dtype) for seed in range(count)]


@draw.FEW
@given(shape=shapes, dtype=draw.floats, blocks=st.permutations(range(7)), pairs=st.integers(0, 3))
def test_copies_change_their_targets_alone(shape, dtype, blocks, pairs):
    caches = pool(shape, dtype)
    named = torch.tensor(blocks[: 2 * pairs], dtype=torch.int64).view(-1, 2)
    expected = [cache.clone() for cache in caches]
    copy_blocks(expected, cache_pointers(expected), named, backend="reference")
    copy_blocks(caches, cache_pointers(caches), named, backend="triton")
    for cache, other, before in zip(caches, expected, pool(shape, dtype), strict=True):
        assert torch.equal(cache, other)
        assert torch.equal(cache[named[:, 1]], before[named[:, 0]])


@draw.FEW
@given(shape=shapes, dtype=draw.floats, blocks=st.permutations(range(7)), count=st.integers(0, 7))
def test_what_is_packed_comes_back_elsewhere(shape, dtype, blocks, count):
    caches, others = pool(shape, dtype), [torch.zeros(shape, dtype=dtype) for _ in range(4)]
    named = torch.tensor(blocks[:count], dtype=torch.int64)
    packed = pack_blocks(caches, cache_pointers(caches), named, backend="triton")
    assert torch.equal(packed, pack_blocks(caches, cache_pointers(caches), named, backend="reference"))
    for backend in ("triton", "reference"):
        unpack_blocks(packed, others, cache_pointers(others), named.flip(0), backend=backend)
        for cache, other in zip(caches, others, strict=True):
            assert torch.equal(other[named.flip(0)], cache[named])


@given(slots=st.permutations(range(AT_ONCE + 10)))
@draw.FEW
def test_blocks_that_were_swapped_out_and_in_are_as_before(slots):
    """More than are packed at once, some to neighbours on the host."""
    caches = pool((len(slots), 1, 4, 2), torch.float32, count=2)
    before = [cache.clone() for cache in caches]
    host = host_pool(caches, len(slots))
    named = list(enumerate([*range(20), *(slot for slot in slots if slot >= 20)]))
    swap_out(caches, cache_pointers(caches), host, named)
    for cache in caches:
        cache.zero_()
    swap_in(host, caches, cache_pointers(caches), [(slot, block) for block, slot in named])
    for cache, original in zip(caches, before, strict=True):
        assert torch.equal(cache, original)


@pytest.mark.parametrize("backend", ["triton", "reference"])
def test_errors_name_the_argument(backend):
    caches = pool((3, 1, 3, 1), torch.float32)
    pairs = torch.zeros(1, 2, dtype=torch.int64)
    assert block_bytes(caches) == 12
    with pytest.raises(ArgumentError, match="caches: blocks of 12 bytes; expected a multiple of 8"):
        copy_blocks(caches, cache_pointers(caches), pairs, backend=backend)
    wider = [*pool((3, 1, 4, 2), torch.float32), torch.zeros(3, 1, 4, 4)]
    with pytest.raises(ArgumentError, match=r"caches\[4\]: expected shape"):
        copy_blocks(wider, cache_pointers(wider), pairs, backend=backend)
