"""Logits → token ids. docs/sampling.md says in which order, and why.

What both ways share needs no torch: `parameters` of a request, the `state` of all rows, and the `samples` of a step. On
a CPU, `on_cpu` is one call into C++ (headrace_kernels/sample_tokens); elsewhere `on_torch` does the same with tensors.
"""
