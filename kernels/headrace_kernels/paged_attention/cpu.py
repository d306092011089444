from headrace_kernels.paged_attention.reference import *  # noqa
