from headrace_kernels.rotary_embedding.reference import *  # noqa
