"""Attention: from the QKV projection to what the output projection reads, over the paged KV cache.

`interface` is what a model needs of a backend, `choose` picks one. `paged` has the kernels of headrace_kernels;
`flashinfer` and `fa3` are that but for attention itself, which those libraries compute.
"""
