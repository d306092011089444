"""Profiles as tables for people and as values for JSON."""

from typing import Any

from headrace_kernels.decoder import OPERATIONS
from headrace_server.profile.floors import Need, add
from headrace_server.profile.machine import Machine, kind_name
from headrace_server.profile.measure import Profile
from headrace_server.profile.memory import RESIDENT_STEPS, Held, Steady

MB, MIB = 10**6, 2**20
HEADER = f"  {'operation':16} {'ms':>9} {'waiting':>9} {'floor':>9} {'x floor':>8} {'MB':>9} {'GFLOP':>9}"


def machine_line(machine: Machine, dtype: int, threads: int, isa: str) -> str:
    flops = ", ".join(
        f"{kind_name(kind, dtype)} {rate / 1e12:.3f} TFLOP/s" for kind, rate in sorted(machine.flops.items())
    )
    return f"{threads} threads, {isa}: reads {machine.bandwidth / 1e9:.1f} GB/s; {flops}"


def table(profile: Profile, needs: dict[str, Need], machine: Machine) -> str:
    """Operations that the model has, their sum, and what is outside them."""
    whole = add(needs.values())
    waiting = sum(profile.waiting.values())
    lines = [
        f"{profile.shape.describe()}: {profile.total * 1e3:.2f} ms a step, "
        f"{profile.shape.tokens / profile.total:,.0f} tokens/s, {profile.outside:.1%} outside kernels",
        HEADER,
        *(
            _line(name, profile.work[name], profile.waiting[name], needs[name], machine)
            for name in OPERATIONS
            if profile.work[name] > 0
        ),
        _line("all kernels", profile.kernels - waiting, waiting, whole, machine),
        f"  {'call':16} {profile.call * 1e3:9.3f}   batch, addresses, into C++ and back",
        f"  {'sampling':16} {profile.sampling * 1e3:9.3f}",
        f"  {'bookkeeping':16} {profile.bookkeeping * 1e3:9.3f}   parsing, rows, results, rendering",
        _line("step", profile.total, None, whole, machine),
    ]
    return "\n".join(lines)


def _line(name: str, work: float, waiting: float | None, need: Need, machine: Machine) -> str:
    floor = need.floor_s(machine)
    share = f"{work / floor:8.2f}" if floor > 0 else f"{'-':>8}"
    waited = f"{waiting * 1e3:9.3f}" if waiting is not None else " " * 9
    size, flops = need.bytes / MB, need.all_flops / 1e9
    return f"  {name:16} {work * 1e3:9.3f} {waited} {floor * 1e3:9.3f} {share} {size:9.2f} {flops:9.3f}"


def steady_line(steady: Steady) -> str:
    return (
        f"steady state, {steady.shape}: resident memory {steady.resident_growth / 1024:+,.0f} KiB in {RESIDENT_STEPS} "
        f"steps; Python holds at most {steady.python_peak / 1024:,.1f} KiB within a step, keeps "
        f"{steady.python_kept:,.0f} bytes of it"
    )


def held_line(held: Held) -> str:
    return (
        f"memory: {held.resident / MB:,.0f} MB resident = weights {held.weights / MB:,.0f} + KV pool "
        f"{held.pool / MB:,.0f} + rest {held.rest / MB:,.0f}; {held.peak / MB:,.0f} MB at most"
    )


def profile_values(profile: Profile, needs: dict[str, Need], machine: Machine) -> dict[str, Any]:
    """Milliseconds, bytes, operations."""
    whole = add(needs.values())
    return {
        "shape": str(profile.shape),
        "tokens": profile.shape.tokens,
        "step_ms": profile.total * 1e3,
        "floor_ms": whole.floor_s(machine) * 1e3,
        "bytes": whole.bytes,
        "flops": whole.all_flops,
        "kernels_ms": profile.kernels * 1e3,
        "call_ms": profile.call * 1e3,
        "sampling_ms": profile.sampling * 1e3,
        "bookkeeping_ms": profile.bookkeeping * 1e3,
        "outside_kernels": profile.outside,
        "operations": {
            name: {
                "ms": profile.work[name] * 1e3,
                "waiting_ms": profile.waiting[name] * 1e3,
                "floor_ms": needs[name].floor_s(machine) * 1e3,
                "bytes": needs[name].bytes,
                "flops": needs[name].all_flops,
            }
            for name in OPERATIONS
        },
    }


def machine_values(machine: Machine, dtype: int) -> dict[str, Any]:
    """Bytes and operations a second."""
    flops = {kind_name(kind, dtype): rate for kind, rate in machine.flops.items()}
    return {"bandwidth": machine.bandwidth, "flops": flops}


def steady_values(steady: Steady) -> dict[str, Any]:
    """Bytes."""
    return {
        "shape": str(steady.shape),
        "resident_growth": steady.resident_growth,
        "python_peak": steady.python_peak,
        "python_kept_a_step": steady.python_kept,
    }


def held_values(held: Held) -> dict[str, Any]:
    """Bytes."""
    return {
        "resident": held.resident,
        "peak": held.peak,
        "weights": held.weights,
        "pool": held.pool,
        "rest": held.rest,
    }
