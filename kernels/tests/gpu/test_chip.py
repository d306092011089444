"""What a chip can do, by what Triton says of it."""

from types import SimpleNamespace

import pytest
from triton.backends.compiler import GPUTarget

from headrace_kernels.gpu import chip


@pytest.mark.parametrize(
    "target, capability",
    [
        (GPUTarget("cuda", 89, 32), 89),
        (GPUTarget("cuda", 120, 32), 120),
        (GPUTarget("hip", "gfx942", 64), 0),
    ],
    ids=["an L4", "RTX Blackwell", "one of AMD's"],
)
def test_the_number_of_a_chip(target: GPUTarget, capability: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chip, "interpreting", lambda: False)
    monkeypatch.setattr(chip, "driver", SimpleNamespace(active=SimpleNamespace(get_current_target=lambda: target)))
    assert chip.capability() == capability
