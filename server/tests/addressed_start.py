"""A start whose tensors have addresses, in main memory, and whose kernels are compiled for sm_90 and not run.

python addressed_start.py RANKS FLAG…    prints how many variants of kernels it asks for
"""

import sys
from collections.abc import Sequence

import torch
from numpy.typing import NDArray
from torch import Tensor

from headrace_kernels import backends
from headrace_kernels.gpu.ahead import compiling
from headrace_server import load, warm
from headrace_server.attention import choose
from headrace_server.devices.absent import AbsentDevice
from headrace_server.devices.cuda import ALIGNMENT, pack, unpack
from headrace_server.distributed.absent import AbsentRanks
from headrace_server.flags import parse_serve, use_kernel_cache
from headrace_server.memory import Limits
from headrace_server.models.registry import read_config
from headrace_server.quantization import method
from headrace_server.runner import Runner
from headrace_server.weights.safetensors import Checkpoint

LIMITS = Limits(7, 33, 100, None, host_bytes=2**20)


class AddressedDevice(AbsentDevice):
    """What is taken there lies as it does on a GPU."""

    torch_device = torch.device("cpu")

    def upload(self, arrays: Sequence[NDArray]) -> list[Tensor]:
        packed, places = pack(arrays)
        memory = torch.empty(len(packed) + ALIGNMENT, dtype=torch.uint8)
        there = memory[-memory.data_ptr() % ALIGNMENT :][: len(packed)]
        return unpack(there.copy_(torch.from_numpy(packed)), arrays, places)


def main(ranks: int, words: Sequence[str]) -> int:
    flags = parse_serve([*words, "--attention-backend", "triton", "--block-size", "16", "--listen", "127.0.0.1:0"])
    use_kernel_cache(flags)
    config, device = read_config(flags.model_dir), AddressedDevice()
    # Triton's kernels compute on a CPU's tensors only in its interpreter, and 4 bits stay 4 bits only elsewhere.
    backends._interpreting = choose._interpreting = lambda: True
    by_device = method.quantization_method
    method.quantization_method = lambda stored, asked, _, *more: by_device(stored, asked, torch.device("meta"), *more)
    with compiling("sm_90") as compiled, backends.preferring("triton"):
        for rank in range(ranks):
            with Checkpoint(flags.model_dir, torch.bfloat16, device.torch_device) as checkpoint:
                compute = load.torch_compute(flags, config, checkpoint, device, AbsentRanks(rank, ranks))
            warm._rehearse(Runner(compute), LIMITS)
    return len(compiled.kernels)


if __name__ == "__main__":
    print(main(int(sys.argv[1]), sys.argv[2:]))
