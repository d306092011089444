"""The attention kernels compiled for chips that are absent."""

from compiled import TARGETS, weigh

from headrace_kernels.paged_attention.tiles import mixed_tiles


def test_nothing_spills_shared_memory_suffices_and_products_are_the_tensor_cores():
    kernels = weigh("attention_calls:some")
    assert {kernel.target for kernel in kernels} == set(TARGETS)
    assert not [kernel for kernel in kernels if not kernel.fits()]
    multiply = [kernel for kernel in kernels if kernel.name in ("_attention_kernel", "_split_kernel")]
    assert len(multiply) >= 16 * len(TARGETS)
    assert all(kernel.tensor_cores for kernel in multiply)


def test_chips_whose_warps_multiply_by_themselves_have_the_tiles_of_such():
    """RTX Blackwell has neither Hopper's matrix instructions nor the data centre's: their tiles spill there."""
    for head_dim, cache_bytes in ((64, 2), (128, 2), (128, 1), (256, 2), (256, 1)):
        tiles = {chip: mixed_tiles(head_dim, 4, 1000.0, 2, cache_bytes, chip) for chip in (80, 86, 90, 100, 120)}
        assert tiles[120] == tiles[86] == tiles[80]
        assert tiles[90] == tiles[100]
    assert mixed_tiles(128, 4, 1000.0, 2, 2, 120) != mixed_tiles(128, 4, 1000.0, 2, 2, 90)
