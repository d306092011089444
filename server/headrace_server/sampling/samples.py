"""What the rows of one step sampled, on the host: the kernels' own type."""

from headrace_kernels.sample_tokens import Samples

__all__ = ["Samples"]
