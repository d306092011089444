"""Logits → token ids. docs/sampling.md says in which order, and why.

What all ways share needs no torch: `parameters` of a request, the `state` of all rows, and the `samples` of a step. The
CPU's compute samples by one call into C++, `on_cpu`. Torch's has a `sampler`: `on_gpu` does the same with Triton's
kernels, and `on_host` calls C++.
"""
