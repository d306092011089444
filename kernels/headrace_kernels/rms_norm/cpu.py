from headrace_kernels.rms_norm.reference import *  # noqa
import torch
DTYPES = (torch.float32, torch.bfloat16)
