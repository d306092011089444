"""KV that goes to host memory and comes back: it is still there, and what never went there can't come back."""

from pathlib import Path

import numpy as np
import pytest
from shard_world import BLOCK_SIZE, COMPUTES, GREEDY, World, load, random_tokens
from tiny_models import TinyModel

from headrace_server.memory import Limits, host_pool_size
from headrace_server.runner import Runner
from headrace_server.warmup import warm_up

PROMPT = random_tokens(2 * BLOCK_SIZE + 5, seed=21)
OTHER = random_tokens(3 * BLOCK_SIZE, seed=22)
HOST_BLOCKS = 8


def load_with_8_bits(directory: Path) -> Runner:
    return load(directory, "--kv-cache-dtype", "int8")


@pytest.fixture(scope="module", params=[*COMPUTES.values(), load_with_8_bits], ids=[*COMPUTES, "C++ in 8 bits"])
def runner(request: pytest.FixtureRequest, tiny_llama: TinyModel) -> Runner:
    return request.param(tiny_llama.directory)


@pytest.fixture
def world(runner: Runner) -> World:
    """A pool of as many blocks as one row can have, and host memory beside it."""
    host_bytes = HOST_BLOCKS * BLOCK_SIZE * runner.compute.kv_bytes_per_token
    return World(runner, max_rows=4, max_total_tokens=64, host_bytes=host_bytes)


def test_what_came_back_into_other_blocks_goes_on_as_if_nothing_had_happened(world: World) -> None:
    swap_and_go_on(world)


def swap_and_go_on(world: World) -> None:
    """Whoever gets the blocks writes over them in the step that sends their contents away. Of the last block, which is
    not whole, the row that comes back gets a copy: copies see what came back."""
    expected = list(world.generate({0: PROMPT}, 7)[0])
    world.forget(0)
    world.generate({0: PROMPT}, 3)
    gone = world.rows.pop(0)
    hosts = [5, 0, 7]
    world.free.extend(gone.blocks)
    world.step(new={1: (OTHER, GREEDY)}, chunks={1: len(OTHER)}, swaps_out=list(zip(gone.blocks, hosts, strict=True)))
    assert set(world.rows[1].blocks) == set(gone.blocks)
    blocks = [world.free.pop() for _ in hosts]
    world.rows[2] = world.held_of(gone.tokens[: gone.computed], blocks)
    world.step(
        new={3: (gone.tokens, GREEDY)},
        generated={3: 3},
        chunks={3: 1},
        shared={3: (2, gone.computed)},
        swaps_back=list(zip(hosts, blocks, strict=True)),
    )
    while len(world.rows[3].answer) < 7:
        world.step(decodes=[3])
    assert world.rows[3].answer == expected


@pytest.mark.parametrize(
    ("swaps", "message"),
    [
        ({"swaps_out": [(0, HOST_BLOCKS)]}, f"names block 0 and host block {HOST_BLOCKS}"),
        ({"swaps_out": [(10**6, 0)]}, "names block 1000000 and host block 0"),
        ({"swaps_back": [(0, 0)]}, "brings back host block 0, which holds nothing"),
        ({"swaps_out": [(0, 1)], "swaps_back": [(1, 0), (2, 1)]}, "brings back host block 2, which holds nothing"),
    ],
    ids=["host block", "block", "empty", "half empty"],
)
def test_a_swap_of_what_is_not_there_fails_the_step(swaps: dict, message: str, world: World) -> None:
    result = world.step(new={0: (PROMPT, GREEDY)}, chunks={0: 1}, **swaps)
    assert result.error is not None and message in result.error


def test_what_came_back_once_can_not_come_back_again(world: World) -> None:
    step = {"chunks": {0: 1}}
    assert world.step(new={0: (PROMPT, GREEDY)}, swaps_out=[(3, 1)], swaps_back=[(1, 3)], **step).error is None
    assert "holds nothing" in (world.step(swaps_back=[(1, 3)], **step).error or "")


def test_warmup_says_how_much_there_is_and_how_long_a_copy_takes(runner: Runner) -> None:
    report = warm_up(runner, Limits(4, 16, 64, 16, HOST_BLOCKS * BLOCK_SIZE * runner.compute.kv_bytes_per_token + 1))
    assert report.host_blocks == HOST_BLOCKS
    assert 0 < report.swap_us < 1_000_000
    none = warm_up(runner, Limits(4, 16, 64, 16))
    assert (none.host_blocks, none.swap_us) == (0, 0)


def test_host_memory_is_at_most_what_is_asked_half_of_what_is_there_and_a_full_batch() -> None:
    def blocks(host_bytes: int, available: int = 10**6) -> int:
        return host_pool_size(Limits(4, 16, 64, None, host_bytes), available, 16, 100, 64)

    assert [blocks(0), blocks(99), blocks(350), blocks(350, available=600), blocks(10**6)] == [0, 0, 3, 3, 16]
    assert blocks(350, available=599) == 2


def test_no_swaps_are_the_usual_case(world: World) -> None:
    world.runner.compute.swap(np.empty((0, 2), np.int64), np.empty((0, 2), np.int64))
