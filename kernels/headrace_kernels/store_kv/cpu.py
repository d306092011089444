from headrace_kernels.store_kv.reference import *  # noqa
