"""The one way to start a Triton kernel.

Three things can happen to a launch. On a GPU the kernel runs. With TRITON_INTERPRET=1 it runs in Triton's interpreter,
on CPU tensors. Inside `gpu.ahead.compiling` it is only compiled, for a chip that need not be there, and arguments may
be tensors of device "meta": so running a model's step there compiles exactly the kernels that this step will use.

For that to hold, a wrapper may not look at a tensor's contents, and integers that change from step to step must be
named in the kernel's `do_not_specialize`: Triton compiles anew for an argument that is 1 or a multiple of 16.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

# Sums of products are fused, as on every GPU since ever; said here because Triton is about to change its default.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

import triton

Observer = Callable[[Any, Sequence[Any], dict[str, Any]], None]

_observer: Observer | None = None


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter, on CPU tensors."""
    return bool(triton.knobs.runtime.interpret)


def launch(kernel: Any, grid: Sequence[int], *args: Any, **meta: Any) -> None:
    """Run `kernel` once per element of `grid`. `meta`: compile-time parameters, num_warps, num_stages.

    An empty grid launches nothing, but is compiled for.
    """
    if _observer is not None:
        _observer(kernel, args, meta)
    elif all(grid):
        kernel[tuple(grid)](*args, **meta)


def observe(observer: Observer | None) -> Observer | None:
    """From here on launches go to `observer` instead of a device; None: to the device again. Returns the one before."""
    global _observer
    before, _observer = _observer, observer
    return before
