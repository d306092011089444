"""Every case of `gpu.cases`: computed in the interpreter, compiled for chips that are absent."""

import pytest
from compiled import TARGETS, weigh

from headrace_kernels.gpu.cases import all_cases, error


def compile_all() -> None:
    """On "meta" the references run too: they must not look at contents either."""
    for case in all_cases("meta"):
        case.run()


@pytest.mark.parametrize("case", list(all_cases("cpu", tiny=True)), ids=lambda case: case.name)
def test_a_case_gives_what_its_definition_does(case):
    assert error(case) <= case.tolerance


def test_kernels_fit_every_chip():
    kernels = weigh(f"{__name__}:compile_all")
    assert {kernel.target for kernel in kernels} == set(TARGETS)
    assert not [kernel for kernel in kernels if not kernel.fits()]
