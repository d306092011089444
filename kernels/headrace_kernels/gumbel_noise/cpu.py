from headrace_kernels.gumbel_noise.reference import *  # noqa
