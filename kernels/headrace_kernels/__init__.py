"""The operations of Headrace's models, each with a plain definition and faster implementations beside it.

One folder holds one operation. Its `__init__.py` is the public function, and that docstring is the specification;
`reference.py` is the plain definition: the tests' oracle, and what runs where nothing faster can; `cpu.cpp` is the C++
for the CPU, bound by `cpu.py`. Operations on torch tensors are gathered in `ops`; importing this package, or one of
the operations on plain memory, does not import torch, which would take seconds.

**The law of the CPU kernels.** With the C++ library a row's bits depend on that row's own tokens only: not on what
else is in the batch, on the number of rows or threads, on whether a token is computed by decode or in a prompt chunk,
on where chunks are cut, or on where the KV blocks lie. It holds within one instruction set; see `native.force_isa`.
"""
