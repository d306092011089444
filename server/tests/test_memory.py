"""How much memory is there, and how many blocks it becomes."""

from pathlib import Path

import pytest

from headrace_server.distributed.collective import WORDS, Act
from headrace_server.errors import CapacityError
from headrace_server.memory import MIB, Limits, available_bytes, available_on_gpu, pool_size

BLOCK_SIZE, BLOCK_BYTES, POSITIONS = 32, MIB, 8192


def size(available_mib: int, **limits: int | None) -> int:
    wanted = {"max_batch_size": 256, "max_batch_prefill_tokens": 512, "max_total_tokens": 0, "num_blocks": None}
    return pool_size(Limits(**{**wanted, **limits}), available_mib * MIB, 0.5, BLOCK_SIZE, BLOCK_BYTES, POSITIONS)


def test_the_pool_takes_its_share_of_what_is_available() -> None:
    assert size(1000) == 500


def test_the_pool_is_no_larger_than_its_rows_could_fill() -> None:
    assert size(10**6, max_batch_size=4, max_total_tokens=100) == 4 * 4
    assert size(10**6, max_batch_size=4) == 4 * POSITIONS // BLOCK_SIZE


def test_a_prescribed_pool_may_take_all_that_is_available_but_no_more() -> None:
    assert size(1000, num_blocks=1000) == 1000
    with pytest.raises(CapacityError, match="a KV pool of 1001 blocks needs 1001 MiB, but only 1000 MiB are available"):
        size(1000, num_blocks=1001)


def test_a_pool_that_cannot_hold_one_request_is_refused_with_both_numbers() -> None:
    assert size(8, max_total_tokens=128) == 4
    with pytest.raises(CapacityError, match="160 tokens needs 5 MiB of KV cache, but only 4 MiB may be used"):
        size(8, max_total_tokens=129)
    with pytest.raises(CapacityError, match="holds 96 tokens, fewer than max_total_tokens 97"):
        size(100, max_total_tokens=97, num_blocks=3)
    with pytest.raises(CapacityError, match="a KV pool of 0 blocks"):
        size(100, num_blocks=0)
    with pytest.raises(CapacityError, match="only 0 MiB may be used"):
        size(1)


def test_a_request_longer_than_the_model_is_refused_with_both_numbers() -> None:
    with pytest.raises(CapacityError, match="max_total_tokens 9000 exceeds the 8192 positions"):
        size(1000, max_total_tokens=9000)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 800),
        ({"memory.max": "max", "memory.current": "5", "memory.stat": "inactive_file 0"}, 800),
        ({"memory.max": str(500 * MIB), "memory.current": str(300 * MIB), "memory.stat": "anon 1"}, 200),
        ({"memory.max": str(500 * MIB), "memory.current": str(300 * MIB),
          "memory.stat": f"anon 1\ninactive_file {100 * MIB}"}, 300),
        ({"memory.max": str(9999 * MIB), "memory.current": "0", "memory.stat": "inactive_file 0"}, 800),
        ({"memory/memory.limit_in_bytes": str(500 * MIB), "memory/memory.usage_in_bytes": str(450 * MIB),
          "memory/memory.stat": "cache 3"}, 50),
    ],
    ids=["no cgroup", "no limit", "a limit", "page cache", "a generous limit", "version 1"],
)  # fmt: skip
def test_available_memory_heeds_the_cgroup(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    everything = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    everything["proc/meminfo"] = f"MemTotal: {1000 * 1024} kB\nMemFree: 3 kB\nMemAvailable: {800 * 1024} kB\n"
    for name, text in everything.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_bytes(tmp_path) == expected * MIB


def test_this_machine_says_something_sensible() -> None:
    assert 0 < available_bytes() < 2**50


def test_a_fraction_of_a_gpu_counts_what_this_process_holds_already() -> None:
    assert available_on_gpu(free=70, total=100, reserved=20, fraction=1.0) == 70, "others hold 10"
    assert available_on_gpu(free=70, total=100, reserved=20, fraction=0.5) == 30
    assert available_on_gpu(free=70, total=100, reserved=60, fraction=0.5) == 0


def test_what_ranks_agree_on_before_warmup_fits_into_their_words() -> None:
    said = (Act.WARM_UP, *Limits(8, 512, 0, None).numbers)
    assert len(said) <= WORDS
