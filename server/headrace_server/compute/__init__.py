"""Who computes steps. A runner knows one `Compute`: `on_cpu` is C++ over numpy arrays and imports torch only to talk to
other ranks, since that would take longer than all else of a start; `on_torch` is torch, on a GPU or where the C++
kernels can't be used."""
