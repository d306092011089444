from headrace_kernels.silu_and_mul.reference import *  # noqa
