"""What all Triton kernels share: how one is launched, compiled without a GPU, and weighed."""
