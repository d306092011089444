"""`python -m headrace_server.gpu_check`: are the kernels right on this GPU, and how near its limits do they run?

Needs Python, torch with Triton, and this repository's two packages; five minutes on one GPU. `--dry` does the same with
tiny sizes in Triton's interpreter, to see that the check itself works; its times say nothing.

`chip` measures what the device can do at best, `kernels` each kernel beside its definition, `attention` attention over
many shapes and beside other libraries, `whole_model` decode steps of an 8B model of random weights; `report` prints.
docs/gpu.md says how to read it.
"""
