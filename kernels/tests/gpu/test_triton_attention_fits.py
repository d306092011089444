"""The attention kernels compiled for chips that are absent."""

from compiled import TARGETS, weigh


def test_nothing_spills_shared_memory_suffices_and_products_are_the_tensor_cores():
    kernels = weigh("attention_calls:some")
    assert {kernel.target for kernel in kernels} == set(TARGETS)
    assert not [kernel for kernel in kernels if not kernel.fits()]
    multiply = [kernel for kernel in kernels if kernel.name in ("_attention_kernel", "_split_kernel")]
    assert len(multiply) >= 16 * len(TARGETS)
    assert all(kernel.tensor_cores for kernel in multiply)
