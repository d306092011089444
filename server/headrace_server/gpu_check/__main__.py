"""The command line: `python -m headrace_server.gpu_check [--dry] [--json FILE]`."""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

BUDGET_SECONDS = 280.0
"""What has not begun by then is left out, and the table says so."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 0 if everything was right, 1 if something was computed wrongly, 2 if there is no GPU."""
    options = _parser().parse_args(argv)
    if options.dry:
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    import torch

    if not options.dry and not torch.cuda.is_available():
        print("error: torch sees no GPU; --dry tries the check itself in Triton's interpreter", file=sys.stderr)
        return 2
    values, right = check(options.dry)
    if options.json is not None:
        options.json.write_text(json.dumps(values, indent=1) + "\n")
    return 0 if right else 1


def check(dry: bool) -> tuple[dict[str, object], bool]:
    """Everything, in the order of its worth. The second value: nothing was wrong."""
    import torch
    import triton

    from headrace_server.devices.interface import Device
    from headrace_server.gpu_check.attention import check_attention
    from headrace_server.gpu_check.chip import measure_chip
    from headrace_server.gpu_check.clock import Clock
    from headrace_server.gpu_check.kernels import check_kernels
    from headrace_server.gpu_check.report import Report
    from headrace_server.gpu_check.whole_model import check_whole_model

    device: Device
    if dry:
        from headrace_server.devices.host import HostDevice

        device = HostDevice()
    else:
        from headrace_server.devices.cuda import CudaDevice

        device = CudaDevice()
    began = time.monotonic()
    report, clock = Report(), Clock(device.torch_device)

    def over() -> bool:
        return time.monotonic() - began > BUDGET_SECONDS

    with torch.inference_mode():
        chip = measure_chip(clock, report, dry)
        check_whole_model(device, chip, report, dry, over)
        check_attention(clock, chip, report, dry, over)
        check_kernels(clock, chip, report, dry, over)
    seconds = time.monotonic() - began
    print(f"\n{chip.name}, torch {torch.__version__}, Triton {triton.__version__}, {seconds:.0f} s", flush=True)
    about = {"device": chip.name, "torch": torch.__version__, "triton": triton.__version__, "seconds": seconds}
    return {**about, "date": time.strftime("%Y-%m-%d"), "dry": dry, "lines": report.as_json()}, report.all_right


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m headrace_server.gpu_check", description=__doc__)
    parser.add_argument("--dry", action="store_true", help="tiny sizes in Triton's interpreter, without a GPU")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the results go too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
